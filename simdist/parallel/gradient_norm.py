"""Gradient norm: the norm of the whole gradient, wherever its parts are, and clipping by it."""

import math

import numpy as np

from simdist.arrays import Array, charge
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.optim import Combine, norms

__all__ = ["clip_factor", "clip_gradient", "combine_over", "global_norm"]


def combine_over(comm: Communicator, algorithm: str = "auto") -> Combine:
    """How the ranks of `comm`, which hold a shard each, add up norms: for `norms`, LARS and LAMB."""

    def combine(values: Array, op: str) -> None:
        all_reduce(values, comm, op, algorithm)

    return combine


def global_norm(gradient: Array, comm: Communicator | None = None, algorithm: str = "auto") -> float:
    """The 2-norm of the whole gradient, the same bits on every rank and for any number of shards.

        replicated     global_norm(gradient)            each rank has all of it: nobody needs to ask
        sharded        global_norm(shard, comm)         the shards of comm's ranks make up the gradient

    So data parallelism and ZeRO clip by the same number.

    Args:
        gradient: flat, of any real dtype; the squares are added as `norms` says.
        comm: the ranks that hold a shard each; all must call. None where the gradient is replicated.
        algorithm: of the all-reduces.

    Returns:
        inf or nan on all ranks, if there is one in the gradient.

    Cost per rank: nothing where it is replicated; else two all-reduces, of 8 and of 16 bytes.
    """
    if comm is None:
        return norms([gradient])[0]
    return norms([gradient], combine_over(comm, algorithm))[0]


def clip_factor(norm: float, max_norm: float) -> float:
    """What to multiply a gradient of this norm by, so that its norm is max_norm at most.

    It is 1 if the norm is not finite: such a gradient cannot be repaired, and its step should be skipped.

    Raises:
        ArgumentError: max_norm is not above 0.

    Source: Pascanu, Mikolov, Bengio 2013, arXiv 1211.5063, algorithm 1.
    """
    if not max_norm > 0:
        raise ArgumentError(f"max_norm is {max_norm}; needs more than 0")
    return max_norm / norm if max_norm < norm < math.inf else 1.0


def clip_gradient(gradient: Array, max_norm: float, comm: Communicator | None = None) -> float:
    """Scale the gradient, in place, so that its norm over all ranks is max_norm at most; returns the norm it had.

    An optimizer that is given `clip_factor` as gradient_scale does the same without a pass over memory.

    Args:
        gradient, comm: as of `global_norm`.
        max_norm: above 0.

    Cost per rank: that of `global_norm`.
    """
    norm = global_norm(gradient, comm)
    factor = clip_factor(norm, max_norm)
    if factor != 1:
        np.multiply(gradient, factor, out=gradient)
        charge(gradient.size, 2 * gradient.nbytes)
    return norm
