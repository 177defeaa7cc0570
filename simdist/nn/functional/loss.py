"""Loss: the softmax of logits and its cross-entropy with the targets."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.fused import fused
from simdist.arrays.working import rounded, widened
from simdist.nn.functional.lookup import within

__all__ = ["cross_entropy", "cross_entropy_backward"]


@fused("loss")
def cross_entropy(
    logits: Array, targets: Array, first: int = 0, combine: Callable[[Array, str], None] = lambda values, op: None
) -> tuple[float, Array]:
    """The sum over the examples of -log softmax(logits)[target], and the softmax itself.

    Each row is shifted by its largest logit first, so no exponential overflows and each sum is at least 1.

    Args:
        logits: shape (examples, classes): all classes, or those from `first` on, if other ranks have the rest.
        targets: shape (examples,), integers below the number of all classes.
        combine: combine(values, op) replaces the values, in place, by their reduction over all ranks that have some
            of the classes: with "max" one value per example, then with "sum" two.

    Returns:
        The sum in nats, added up in float64; and the probabilities, of the logits' shape, in their working
        dtype: in 16 bits a probability near 1 would round to 1, and its derivative to 0.
    """
    wide = widened(logits)
    top = wide.max(axis=1)
    combine(top, "max")
    p = wide - top[:, None]
    at, inside = within(targets, first, logits.shape[1])
    sums = np.empty_like(p, shape=(2, len(targets)))
    totals, hits = sums
    hits[...] = 0
    np.copyto(hits, p[np.arange(len(targets)), at], where=inside)  # a product by 0 would make NaN of -Inf
    np.exp(p, out=p)
    totals[...] = p.sum(axis=1)
    combine(sums, "sum")
    p /= totals[:, None]
    charge(5 * logits.size, logits.nbytes + p.nbytes)
    return float((np.log(totals) - hits).sum(dtype=np.float64)), p


@fused("loss")
def cross_entropy_backward(p: Array, targets: Array, scale: float, dtype: Any = None, first: int = 0) -> Array:
    """The derivatives of scale · `cross_entropy` by the logits: scale (p - 1 at the target).

    Args:
        dtype: of the logits; that of p if not given.
        first: as for `cross_entropy`.
    """
    d = p * scale
    at, inside = within(targets, first, p.shape[1])
    d[np.arange(len(targets)), at] -= np.multiply(inside, scale, dtype=d.dtype)
    d = rounded(d, dtype or p.dtype)
    charge(p.size, p.nbytes + d.nbytes)
    return d
