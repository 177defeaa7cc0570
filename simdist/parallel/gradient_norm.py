"""Gradient norm: how ranks with parts of a gradient add up its norm, and clipping by it."""

import math

import numpy as np

from simdist.arrays import Array, charge
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.errors import require_more
from simdist.optim import Combine, norms

__all__ = ["clip_factor", "clip_gradient", "combine_over"]


def combine_over(comm: Communicator) -> Combine:
    """How the ranks of `comm`, which hold a shard each, add up norms: for `norm`, `norms`, LARS and LAMB."""
    return lambda values, op: all_reduce(values, comm, op)


def clip_factor(norm: float, max_norm: float) -> float:
    """What to multiply a gradient of this norm by, so that its norm is max_norm at most.

    It is 1 if the norm is not finite, which no factor repairs: with a loss scale such a step is skipped. PyTorch and
    Megatron-LM divide by the norm + 1e-6.

    Raises:
        ArgumentError: max_norm is not above 0.

    Source: Pascanu, Mikolov, Bengio 2013, arXiv 1211.5063, algorithm 1.
    """
    require_more("max_norm", max_norm, 0)
    return max_norm / norm if max_norm < norm < math.inf else 1.0


def clip_gradient(gradient: Array, max_norm: float) -> float:
    """Scale a whole gradient, in place, so that its norm is max_norm at most; returns the norm that it had.

    An optimizer that is given `clip_factor` as gradient_scale does the same without a pass over memory.

    Args:
        gradient: flat, of any real dtype.
        max_norm: above 0.
    """
    (norm,) = norms([gradient])
    factor = clip_factor(norm, max_norm)
    if factor != 1:
        np.multiply(gradient, factor, out=gradient)
        charge(gradient.size, 2 * gradient.nbytes)
    return norm
