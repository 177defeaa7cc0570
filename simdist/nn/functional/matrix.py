"""Matrix: products of matrices, and the linear map made of them. All of a model's products are made here."""

import numpy as np

from simdist.arrays import Array, charge

__all__ = ["linear", "linear_backward_input", "linear_backward_weight", "product"]


def product(x: Array, w: Array, out: Array | None = None) -> Array:
    """Returns x @ w, into `out` if there is one; axes before the last two are broadcast.

    Cost: 2 m k n operations for (m, k) @ (k, n).
    """
    y = np.matmul(x, w) if out is None else np.matmul(x, w, out=out)
    charge(2 * y.size * x.shape[-1], x.nbytes + w.nbytes + y.nbytes)
    return y


def _rows(x: Array) -> Array:
    """All axes before the last as one."""
    return x.reshape(-1, x.shape[-1])


def linear(x: Array, w: Array, b: Array | None = None) -> Array:
    """Returns x @ w + b: (…, in_features) to (…, out_features)."""
    y = product(_rows(x), w)
    if b is not None:
        y += b
        charge(y.size, 2 * y.nbytes + b.nbytes)
    return y.reshape(*x.shape[:-1], w.shape[1])


def linear_backward_input(dy: Array, w: Array) -> Array:
    """Returns dx = dy @ w.T: all that the layer before waits for."""
    return product(_rows(dy), w.T).reshape(*dy.shape[:-1], w.shape[0])


def linear_backward_weight(x: Array, dy: Array, dw: Array, db: Array | None = None) -> None:
    """Add x.T @ dy to dw and the column sums of dy to db: nobody waits for it but the optimizer."""
    x, dy = _rows(x), _rows(dy)
    dw += product(x.T, dy)
    charge(dw.size, 3 * dw.nbytes)
    if db is not None:
        db += dy.sum(axis=0)
        charge(dy.size + db.size, dy.nbytes + 3 * db.nbytes)
