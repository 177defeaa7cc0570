"""DiLoCo: many steps by oneself, then one step of all by how far they came.

    θ    the weights that all ranks hold        θ_i   rank i's, after H inner steps from θ
    Δ    the outer gradient: the mean of θ - θ_i over the ranks

        rank 0     θ --AdamW-- … --AdamW-- θ₀ --+                         +--> θ
        rank 1     θ --AdamW-- … --AdamW-- θ₁ --+-- Δ -- Nesterov by Δ ----+--> θ
        rank 2     θ --AdamW-- … --AdamW-- θ₂ --+                         +--> θ

An outer step of plain SGD at rate 1 leaves θ at the mean of all θ_i, and this is local SGD. The outer momentum goes on
in the direction in which round after round has led.

Source: Douillard et al. 2023, arXiv 2311.08105, algorithm 1.
"""

import numpy as np

from simdist.arrays import charge
from simdist.asynchronous.local_sgd import average
from simdist.asynchronous.replica import Replica, require_steps
from simdist.errors import ArgumentError
from simdist.optim import SGD, Optimizer

__all__ = ["diloco"]


def diloco(
    replica: Replica,
    rounds: int,
    local_steps: int,
    *,
    outer: Optimizer | None = None,
    outer_rate: float = 0.7,
    algorithm: str = "auto",
) -> None:
    """Train in rounds of H inner steps and one outer step; all ranks have the same weights after each.

    Args:
        replica: of this rank, with the same weights on all at the start. The paper's inner optimizer is AdamW;
            what it remembers stays on its rank from round to round, and is not averaged.
        rounds: how many.
        local_steps: H, inner steps in a round, at least 1. The paper takes 500.
        outer: the optimizer that steps by Δ, the same on all ranks; SGD with Nesterov momentum 0.9 where not given.
        outer_rate: its learning rate.
        algorithm: of the all-reduce.

    Cost per rank and round: one all-reduce of the weights. Besides, θ is kept: n bytes, and the outer state.

    Raises:
        ArgumentError: local_steps is below 1, or rounds below 0; on every rank.
    """
    require_steps("rounds", rounds)
    if local_steps < 1:
        raise ArgumentError(f"local_steps is {local_steps} on rank {replica.comm.rank}; needs at least 1")
    x, comm = replica.weights, replica.comm
    outer = outer or SGD(x, momentum=0.9, nesterov=True)
    theta, delta = x.copy(), np.empty_like(x)
    for t in range(rounds):
        for step in range(t * local_steps, (t + 1) * local_steps):
            replica.descend(replica.find_gradient(step), step)
        with comm.span("outer step", x.nbytes):
            np.subtract(theta, x, out=delta)
            charge(x.size, 3 * x.nbytes)
            average(delta, comm, algorithm)
            outer.step(theta, delta, outer_rate)
            np.copyto(x, theta)
        replica.observe(t, x)
