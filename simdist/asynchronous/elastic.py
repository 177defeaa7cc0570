"""Elastic averaging: ranks are drawn to a centre, and the centre to them, instead of becoming equal (EASGD).

    x_i   rank i's weights      g_i   its gradient at x_i      η   the learning rate      p   ranks
    c     the centre            x̄     the mean of the x_i      α   of the ranks' moves    β   of the centre's, p α

        x_i ← x_i - η g_i - α (x_i - c)                rank 0    x₀ --+-- α --+
        c   ← c + β (x̄ - c)                            rank 1    x₁ --+-- α --+-- c        springs of length 0
                                                       rank 2    x₂ --+-- α --+

Both from the values before the step, and only in one of τ steps; in the others ranks descend by themselves. Springs
pull with equal force at both ends: p x̄ + c moves by gradients alone. In a step without these, the ranks' distances from
each other shrink to 1 - α of what they were, and that of their mean from the centre to 1 - α - β. Where all rest,

    c = x̄,   g_i = (α/η) (c - x_i)       the minimum of Σ f_i(x_i) + (α/2η) ‖x_i - c‖²

so each rank may stay near its own minimum, and the centre is where the gradients of all cancel. The smaller α, the
more the ranks explore.

Source: Zhang, Choromanska, LeCun 2015, arXiv 1412.6651, section 3; τ, algorithm 1.
"""

import numpy as np

from simdist.arrays import Array, charge
from simdist.asynchronous.local_sgd import any_asked, average
from simdist.asynchronous.worker import Asked, Worker
from simdist.errors import ArgumentError, as_declared, require_least, require_more

__all__ = ["easgd", "elastic_limit"]


def easgd(
    worker: Worker,
    centre: Array,
    steps: int,
    local_steps: int = 1,
    *,
    beta: float = 0.9,
    algorithm: str = "auto",
    asked: Asked | None = None,
) -> None:
    """Train by elastic averaging, synchronously: each rank keeps its own weights and a copy of the centre.

    Args:
        worker: of this rank; workers may start from different weights.
        centre: c, as the weights, and the same on all ranks; changed in place.
        steps: the total number of steps, including those that the worker has already done.
        local_steps: τ, at least 1: before steps 0, τ, 2τ, … the ranks exchange their weights.
        beta: β, from 0 to 1; α is β / p.
        algorithm, asked: of the all-reduce; whether to stop before the next exchange, if any is asked; on all or none.

    Cost per rank: one all-reduce of the weights in τ steps. Memory: c, x̄ and a spare vector.

    Raises:
        ArgumentError: the centre is not as the weights; steps is below 0, local_steps below 1, or beta not from 0 to 1.
    """
    _check(worker, centre, steps, local_steps, beta)
    x, comm = worker.weights, worker.comm
    mean, spare = np.empty_like(x), np.empty_like(x)
    for step in range(worker.done, steps):
        if (exchanges := step % local_steps == 0) and any_asked(asked, comm):
            break
        g = worker.find_gradient(step)
        if exchanges:
            with comm.span("elastic step", x.nbytes):
                np.copyto(mean, x)
                average(mean, comm, algorithm)
                _pull(x, centre, beta / comm.size, spare)
                _pull(centre, mean, beta, spare)
        worker.descend(g, step)
        worker.observe(step, x)


def _check(worker: Worker, centre: Array, steps: int, local_steps: int, beta: float) -> None:
    """Raise ArgumentError unless there can be such a training."""
    x = worker.weights
    if centre.shape != x.shape or centre.dtype != x.dtype:
        raise ArgumentError(f"a centre of {centre.dtype}{centre.shape}; needs {x.dtype}{x.shape}, as the weights")
    require_least("steps", steps, 0)
    require_least("local_steps", local_steps, 1)
    if not 0 <= beta <= 1:
        raise ArgumentError(f"beta is {beta}; needs 0 to 1")


def _pull(y: Array, to: Array, share: float, spare: Array) -> None:
    """y ← y + share · (to - y)."""
    np.subtract(to, y, out=spare)
    np.multiply(spare, share, out=spare)
    np.add(y, spare, out=y)
    charge(3 * y.size, 8 * y.nbytes)


@as_declared
def elastic_limit(curvature: float, rate: float, ranks: int = 1) -> float:
    """(4 - 2ηλ) / (2 + 2/p - ηλ): the β up to which elastic averaging is stable, if every loss is λx²/2.

    In a step the ranks' mean and the centre become ((1 - ηλ - α) x̄ + α c, β x̄ + (1 - β) c), whose eigenvalues are then
    from -1 to 1; their distances from the mean shrink to 1 - ηλ - α, which allows more. For p = 1 it is the paper's
    limit of α, (4 - 2η) / (4 - η) with λ = 1, for any number of ranks that exchange with the centre one after another.

        elastic_limit(1.0, 1.0)                         # 2/3
        elastic_limit(1.0, 1.0, ranks=8)                # 1.6: any β up to 1 will do

    Args:
        curvature: λ, the highest of the losses.
        rate: η, at most 2/λ.
        ranks: p.

    Raises:
        ArgumentError: curvature is not above 0, rate above 2/λ, or ranks less than 1.

    Source: the same, section 4 (round-robin).
    """
    require_more("curvature", curvature, 0)
    require_least("ranks", ranks, 1)
    step = rate * curvature
    if step > 2:
        raise ArgumentError(f"rate is {rate}, and curvature {curvature}; needs a rate of at most {2 / curvature:g}")
    return (4 - 2 * step) / (2 + 2 / ranks - step)
