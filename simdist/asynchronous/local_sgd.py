"""Local SGD: ranks make steps independently, and average their weights every H steps.

    H   steps between two averages             γ g   a rank's local step

        rank 0     x - γg - γg - γg --+             +--> x̄ - γg - γg - γg --+
        rank 1     x - γg - γg - γg --+-- average --+--> x̄ - γg - γg - γg --+-- …
        rank 2     x - γg - γg - γg --+             +--> x̄ - γg - γg - γg --+

With H = 1 and plain SGD this is data parallelism: the mean of x - γ g_i is x - γ times the mean of g_i. With larger H
it sends 1/H of the bytes, and ranks drift apart in between. Post-local SGD averages after every step at first, while
weights change fast, and then every H steps.

Source: Stich 2019, arXiv 1805.09767, algorithm 1; Lin et al. 2020, arXiv 1808.07217 (post-local SGD).
"""

import math
from collections.abc import Callable

import numpy as np

from simdist.arrays import Array, charge
from simdist.asynchronous.worker import Asked, Worker
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.errors import ArgumentError, as_declared, require_least, require_more

__all__ = ["any_asked", "average", "best_local_steps", "local_sgd", "local_sgd_error", "post_local"]

LocalSteps = int | Callable[[int], int]


def post_local(switch_step: int, local_steps: int) -> Callable[[int], int]:
    """A schedule for `local_sgd`: 1 local step before step `switch_step`, `local_steps` from then on.

    PyTorch averages gradients before the switch, not weights. For plain SGD that is the same; but the state of an
    optimizer differs here between ranks from the first step on.
    """
    return lambda step: 1 if step < switch_step else local_steps


def average(x: Array, comm: Communicator, algorithm: str = "auto") -> None:
    """Replace x by its mean over all ranks. Cost: that of the all-reduce."""
    all_reduce(x, comm, algorithm=algorithm)
    with comm.span("update (mix)"):
        np.multiply(x, 1 / comm.size, out=x)
        charge(x.size, 2 * x.nbytes)


def any_asked(asked: Asked | None, comm: Communicator) -> bool:
    """Whether any rank is asked to stop. All must call it, at an average, where they wait for each other anyway."""
    return asked is not None and any(comm.exchange("stop" if asked() else ""))


def local_sgd(
    worker: Worker, steps: int, local_steps: LocalSteps, algorithm: str = "auto", asked: Asked | None = None
) -> int:
    """Train by local steps; all ranks have the same weights at the end.

    Args:
        worker: this rank's; all start from the same weights. Its optimizer state stays on this rank.
        steps: the total number of steps, including those that the worker has already done; the last is always averaged.
        local_steps: H, at least 1; or H as a function of the step just made, the same on all ranks.
        algorithm: of the all-reduce.
        asked: whether to stop; all stop at the next average if any rank is asked. Given on all ranks or on none.

    Returns:
        The number of averages: ceil(steps / H) for a fixed H.

    Cost per rank: one all-reduce of the weights per average.

    Raises:
        ArgumentError: local_steps is below 1, or steps below 0; on every rank.
    """
    require_least("steps", steps, 0)
    x, comm = worker.weights, worker.comm
    since, averages = 0, 0
    for step in range(worker.done, steps):
        worker.descend(worker.find_gradient(step), step)
        since += 1
        h = local_steps(step) if callable(local_steps) else local_steps
        if h < 1:
            raise ArgumentError(f"local_steps is {h} at step {step} on rank {comm.rank}; needs at least 1")
        if since >= h or step == steps - 1:
            with comm.span("average weights", x.nbytes):
                average(x, comm, algorithm)
            since, averages = 0, averages + 1
        worker.observe(step, x)
        if since == 0 and any_asked(asked, comm):
            break
    return averages


@as_declared
def local_sgd_error(
    steps: float,
    ranks: int,
    local_steps: float,
    learning_rate: float,
    *,
    excess: float,
    smoothness: float = 1.0,
    variance: float = 1.0,
) -> float:
    """2 (F₁ - F*) / (γK) + γLσ²/p + γ²L²σ² (H-1): the most that ‖∇F(x̄)‖² is, on average over K steps.

    In T seconds there are K = T / (Y + D/H) steps of Y seconds, with D for an average: so H speeds up training by
    (1 + D/Y) / (1 + D/(HY)), and costs the last term.

    Args:
        steps, ranks, local_steps, learning_rate: K, p, H and γ, where γL + γ²L² H (H-1) is at most 1.
        excess: F₁ - F*, of the loss at first over the least.
        smoothness: L, the most that gradients change per unit of distance.
        variance: σ², of a rank's gradient.

    Raises:
        ArgumentError: steps, ranks or local_steps is less than 1, or another number not above 0.

    Source: Wang, Joshi 2019, arXiv 1810.08313, theorem 1.
    """
    if min(steps, ranks, local_steps) < 1:
        told = f"{steps} steps on {ranks} ranks, {local_steps} between averages"
        raise ArgumentError(f"{told}; needs at least 1 of each")
    numbers = {"learning_rate": learning_rate, "excess": excess, "smoothness": smoothness, "variance": variance}
    for name, number in numbers.items():
        require_more(name, number, 0)
    drift = (learning_rate * smoothness) ** 2 * variance * (local_steps - 1)
    return 2 * excess / (learning_rate * steps) + learning_rate * smoothness * variance / ranks + drift


@as_declared
def best_local_steps(
    seconds: float,
    average_s: float,
    learning_rate: float,
    *,
    excess: float,
    smoothness: float = 1.0,
    variance: float = 1.0,
) -> float:
    """√(2 (F₁ - F*) D / (γ³L²σ²T)): the H for which `local_sgd_error` is least after T seconds, or 1 if that is more.

    Args:
        seconds, average_s: T, and D of an average. The time of a step does not matter.
        learning_rate, excess, smoothness, variance: as of `local_sgd_error`.

    Raises:
        ArgumentError: average_s is below 0, or another number not above 0.

    Source: the same, theorem 2.
    """
    numbers = {"learning_rate": learning_rate, "excess": excess, "smoothness": smoothness, "variance": variance}
    for name, number in {"seconds": seconds, **numbers}.items():
        require_more(name, number, 0)
    best = math.sqrt(2 * excess * average_s / (learning_rate**3 * smoothness**2 * variance * seconds))
    return max(1.0, best)
