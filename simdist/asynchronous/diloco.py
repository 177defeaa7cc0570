"""DiLoCo: many local steps on each rank, then one common step by the mean of their changes.

    θ    the weights that all ranks hold        θ_i   rank i's, after H inner steps from θ
    Δ    the outer gradient: the mean of θ - θ_i over the ranks

        rank 0     θ --AdamW-- … --AdamW-- θ₀ --+                         +--> θ
        rank 1     θ --AdamW-- … --AdamW-- θ₁ --+-- Δ -- Nesterov by Δ ---+--> θ
        rank 2     θ --AdamW-- … --AdamW-- θ₂ --+                         +--> θ

An outer step of plain SGD at rate 1 sets θ to the mean of all θ_i: this is local SGD. Outer momentum accumulates the
directions of successive rounds. The paper's inner optimizer is AdamW, whose moments stay on their rank across rounds;
its rounds have H = 500 steps.

Source: Douillard et al. 2023, arXiv 2311.08105, algorithm 1.
"""

import numpy as np

from simdist.arrays import Array, charge
from simdist.asynchronous.local_sgd import any_asked, average
from simdist.asynchronous.worker import Asked, Worker
from simdist.errors import ArgumentError, require_least
from simdist.optim import SGD, Optimizer

__all__ = ["diloco", "nesterov"]


def nesterov(weights: Array) -> Optimizer:
    """The paper's outer optimizer."""
    return SGD(weights, momentum=0.9, nesterov=True)


def diloco(
    worker: Worker,
    rounds: int,
    local_steps: int,
    *,
    outer: Optimizer | None = None,
    outer_rate: float = 0.7,
    algorithm: str = "auto",
    asked: Asked | None = None,
) -> None:
    """Train in rounds of H inner steps and one outer step; all ranks have the same weights after each.

    Args:
        worker: this rank's; all start from the same weights.
        rounds, local_steps: the total, including rounds already done; H, the inner steps of each, at least 1.
        outer, outer_rate: the optimizer that steps by Δ, equal on all ranks, `nesterov` if None; its learning rate.
        algorithm, asked: of the all-reduce; whether to stop after this round, if any rank is asked; on all or none.

    Cost per rank and round: one all-reduce of the weights. Memory: θ and Δ, n bytes each, and the outer state.

    Raises:
        ArgumentError: local_steps is below 1, rounds below 0, or the worker is in the middle of a round.
    """
    _require_rounds(worker, rounds, local_steps)
    x, comm, outer = worker.weights, worker.comm, outer or nesterov(worker.weights)
    theta, delta = x.copy(), np.empty_like(x)
    for t in range(worker.done // local_steps, rounds):
        for step in range(t * local_steps, (t + 1) * local_steps):
            worker.descend(worker.find_gradient(step), step)
        with comm.span("outer step", x.nbytes):
            np.subtract(theta, x, out=delta)
            charge(x.size, 3 * x.nbytes)
            average(delta, comm, algorithm)
            with comm.span("update"):
                outer.step(theta, delta, outer_rate)
                np.copyto(x, theta)
                charge(0, 2 * x.nbytes)
        worker.observe(step, x)
        if any_asked(asked, comm):
            break


def _require_rounds(worker: Worker, rounds: int, local_steps: int) -> None:
    """Raise ArgumentError unless there can be such rounds, and the worker is at the end of one."""
    require_least("rounds", rounds, 0)
    require_least("local_steps", local_steps, 1)
    if worker.done % local_steps:
        raise ArgumentError(f"{worker.done} steps are done, and local_steps is {local_steps}; needs whole rounds")
