"""Experts: the linear maps of several experts at once, each on its own slots.

E  experts      m  slots of each        y[e] = x[e] @ w[e] + b[e]
"""

from simdist.arrays import Array, charge
from simdist.nn.functional.matrix import add_sums, product

__all__ = ["experts_linear", "experts_linear_backward_input", "experts_linear_backward_weight"]


def experts_linear(x: Array, w: Array, b: Array | None = None, out: Array | None = None) -> Array:
    """Returns y: (E, m, in_features) to (E, m, out_features), with w (E, in_features, out_features), b (E, …)."""
    if b is None:
        return product(x, w, out)
    y = product(x, w, out, plus=b[:, None])
    charge(y.size, 2 * y.nbytes + b.nbytes)
    return y


def experts_linear_backward_input(dy: Array, w: Array, out: Array | None = None) -> Array:
    """Returns dx[e] = dy[e] @ w[e].T."""
    return product(dy, w.swapaxes(-1, -2), out)


def experts_linear_backward_weight(x: Array, dy: Array, dw: Array, db: Array | None = None) -> None:
    """Add x[e].T @ dy[e] to dw[e], and the sum of dy[e] over the slots to db[e]."""
    product(x.swapaxes(-1, -2), dy, out=dw, plus=dw)
    charge(dw.size, 3 * dw.nbytes)
    if db is not None:
        add_sums(dy, 1, db)
