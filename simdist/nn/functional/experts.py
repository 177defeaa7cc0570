"""Experts: the linear maps of several experts at once, each on its own slots.

E  experts      m  slots of each        y[e] = x[e] @ w[e] + b[e]
"""

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.working import working_dtype
from simdist.nn.functional.matrix import product

__all__ = ["experts_linear", "experts_linear_backward_input", "experts_linear_backward_weight"]


def experts_linear(x: Array, w: Array, b: Array | None = None) -> Array:
    """Returns y: (E, m, in_features) to (E, m, out_features), with w (E, in_features, out_features), b (E, …)."""
    if b is None:
        return product(x, w)
    y = product(x, w, plus=b[:, None])
    charge(y.size, 2 * y.nbytes + b.nbytes)
    return y


def experts_linear_backward_input(dy: Array, w: Array) -> Array:
    """Returns dx[e] = dy[e] @ w[e].T."""
    return product(dy, w.swapaxes(-1, -2))


def experts_linear_backward_weight(x: Array, dy: Array, dw: Array, db: Array | None = None) -> None:
    """Add x[e].T @ dy[e] to dw[e], and the sum of dy[e] over the slots to db[e]."""
    product(x.swapaxes(-1, -2), dy, out=dw, plus=dw)
    charge(dw.size, 3 * dw.nbytes)
    if db is None:
        return
    dtype = working_dtype(db.dtype)
    np.add(db, dy.sum(axis=1, dtype=dtype), out=db, dtype=dtype, casting="same_kind")
    charge(dy.size + db.size, dy.nbytes + 3 * db.nbytes)
