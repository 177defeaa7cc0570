"""The operations of a model, forward and backward, as plain functions: the one place where a model computes.

    x, y    inputs and outputs, a row an example          dx, dy    the loss's derivatives by them
    w, b    weights (in_features, out_features), bias     dw, db    the same; a backward function adds to them

Each function charges the meter: a multiplication and an addition are one operation each, a transcendental
function is one, and each operand counts as read or written once.
"""

import math

import numpy as np

from simdist.arrays import Array, charge

__all__ = [
    "cross_entropy",
    "cross_entropy_backward",
    "embedding",
    "embedding_backward",
    "gelu",
    "gelu_backward",
    "linear",
    "linear_backward_input",
    "linear_backward_weight",
]


# -- linear -------------------------------------------------------------------------------------------


def _matmul(x: Array, w: Array) -> Array:
    y = np.matmul(x, w)
    charge(2 * x.shape[0] * x.shape[1] * w.shape[1], x.nbytes + w.nbytes + y.nbytes)
    return y


def linear(x: Array, w: Array, b: Array) -> Array:
    """Returns x @ w + b, of shape (examples, out_features)."""
    y = _matmul(x, w)
    y += b
    charge(y.size, 2 * y.nbytes + b.nbytes)
    return y


def linear_backward_input(dy: Array, w: Array) -> Array:
    """Returns dx = dy @ w.T: all that the layer before waits for."""
    return _matmul(dy, w.T)


def linear_backward_weight(x: Array, dy: Array, dw: Array, db: Array) -> None:
    """Add x.T @ dy to dw and the column sums of dy to db: nobody waits for it but the optimizer."""
    dw += _matmul(x.T, dy)
    charge(dw.size, 3 * dw.nbytes)
    db += dy.sum(axis=0)
    charge(dy.size + db.size, dy.nbytes + 3 * db.nbytes)


# -- embedding ----------------------------------------------------------------------------------------


def embedding(indices: Array, table: Array) -> Array:
    """The table's rows at these indices: (…,) integers and (entries, width) give (…, width)."""
    y = table[indices]
    charge(0, indices.nbytes + 2 * y.nbytes)
    return y


def embedding_backward(indices: Array, dy: Array, dtable: Array) -> None:
    """Add each row of dy to the row of dtable that it came from.

    Sorted by index, the rows of one entry lie in one run, and the runs are summed in one pass; the order of
    the sums is always the same.
    """
    flat = indices.reshape(-1)
    order = np.argsort(flat, kind="stable")
    lengths = np.bincount(flat)
    entries = lengths.nonzero()[0]
    starts = (np.cumsum(lengths) - lengths)[entries]
    dtable[entries] += np.add.reduceat(dy.reshape(-1, dtable.shape[1])[order], starts, axis=0)
    charge(dy.size, 3 * dy.nbytes + 3 * len(entries) * dtable.shape[1] * dtable.itemsize)


# -- gelu ---------------------------------------------------------------------------------------------

_C = math.sqrt(2 / math.pi)
_A = 0.044715


def gelu(x: Array) -> tuple[Array, Array]:
    """The Gaussian error linear unit: y = x/2 (1 + t) with t = tanh(√(2/π) (x + 0.044715 x³)); returns y and t.

    Source: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.
    """
    t = x * x
    t *= _C * _A
    t += _C
    t *= x
    np.tanh(t, out=t)
    y = t + 1
    y *= x
    y *= 0.5
    charge(8 * x.size, 3 * x.nbytes)
    return y, t


def gelu_backward(x: Array, t: Array, dy: Array) -> Array:
    """Returns dx = dy (1 + t + x (1 - t²) √(2/π) (1 + 3 · 0.044715 x²)) / 2; x and t as of `gelu`."""
    slope = x * x
    slope *= 3 * _A * _C
    slope += _C
    slope *= x
    dx = t * t
    np.subtract(1, dx, out=dx)
    dx *= slope
    dx += t
    dx += 1
    dx *= dy
    dx *= 0.5
    charge(11 * x.size, 4 * x.nbytes)
    return dx


# -- softmax and cross-entropy ------------------------------------------------------------------------


def cross_entropy(logits: Array, targets: Array) -> tuple[float, Array]:
    """The sum over the examples of -log softmax(logits)[target], and the softmax itself.

    Each row is shifted by its largest logit first, so no exponential overflows and each sum is at least 1.

    Args:
        logits: shape (examples, classes).
        targets: shape (examples,), integers below classes.

    Returns:
        The sum in nats, added up in float64; and the probabilities, of the logits' shape.
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    rows = np.arange(len(targets))
    hit = shifted[rows, targets]
    p = np.exp(shifted, out=shifted)
    totals = p.sum(axis=1, keepdims=True)
    p /= totals
    charge(5 * logits.size, 2 * logits.nbytes)
    return float((np.log(totals[:, 0]) - hit).sum(dtype=np.float64)), p


def cross_entropy_backward(p: Array, targets: Array, scale: float) -> Array:
    """The derivatives of scale · `cross_entropy` by the logits: scale (p - 1 at the target)."""
    d = p * scale
    d[np.arange(len(targets)), targets] -= scale
    charge(p.size, 2 * p.nbytes)
    return d
