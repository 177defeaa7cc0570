"""Loss: the softmax of logits and its cross-entropy with what was to be guessed."""

from typing import Any

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.working import rounded, widened

__all__ = ["cross_entropy", "cross_entropy_backward"]


def cross_entropy(logits: Array, targets: Array) -> tuple[float, Array]:
    """The sum over the examples of -log softmax(logits)[target], and the softmax itself.

    Each row is shifted by its largest logit first, so no exponential overflows and each sum is at least 1.

    Args:
        logits: shape (examples, classes).
        targets: shape (examples,), integers below classes.

    Returns:
        The sum in nats, added up in float64; and the probabilities, of the logits' shape, in their working
        dtype: in fewer bits a probability near 1 would be 1, and its derivative nothing.
    """
    wide = widened(logits)
    p = wide - wide.max(axis=1, keepdims=True)
    rows = np.arange(len(targets))
    hit = p[rows, targets]
    np.exp(p, out=p)
    totals = p.sum(axis=1, keepdims=True)
    p /= totals
    charge(5 * logits.size, 2 * logits.nbytes)
    return float((np.log(totals[:, 0]) - hit).sum(dtype=np.float64)), p


def cross_entropy_backward(p: Array, targets: Array, scale: float, dtype: Any = None) -> Array:
    """The derivatives of scale · `cross_entropy` by the logits: scale (p - 1 at the target).

    Args:
        dtype: of the logits; that of p where it is not given.
    """
    d = p * scale
    d[np.arange(len(targets)), targets] -= scale
    charge(p.size, 2 * p.nbytes)
    return rounded(d, dtype or p.dtype)
