"""Matrix: products and sums of matrices, and linear maps. All matrix products of a model are computed here."""

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.fused import fused
from simdist.arrays.matmul import matmul
from simdist.arrays.working import widened, working_dtype

__all__ = [
    "add",
    "add_column_sums",
    "add_sums",
    "as_rows",
    "column_sums",
    "linear",
    "linear_backward_input",
    "linear_backward_weight",
    "product",
]


def product(
    x: Array, w: Array, out: Array | None = None, plus: Array | None = None, itemsize: int | None = None
) -> Array:
    """Returns x @ w + plus, in `out` if given: see `matmul`.

    Args:
        plus: the caller charges for it.
        itemsize: of the numbers as stored, if x and w are in their working dtype.

    Cost: 2 m k n operations for (m, k) @ (k, n).
    """
    y = matmul(x, w, out, plus)
    charge(2 * y.size * x.shape[-1], (x.size + w.size + y.size) * (itemsize or x.itemsize))
    return y


@fused("add")
def add(y: Array, x: Array) -> Array:
    """Add x, of y's shape or without its first axes, to y, in place, and return y, which the caller owns."""
    np.add(y, x, out=y, dtype=working_dtype(y.dtype), casting="same_kind")
    charge(y.size, 2 * y.nbytes + x.nbytes)
    return y


def as_rows(x: Array) -> Array:
    """x with all axes before the last merged into one."""
    return x.reshape(-1, x.shape[-1])


def column_sums(rows: Array) -> Array:
    """The sum of all rows, in their working dtype: a matrix product, which takes half the time of NumPy's sum.

    The caller charges for it.
    """
    rows = widened(rows)
    ones = np.empty_like(rows, shape=(1, len(rows)))
    ones[...] = 1
    return (ones @ rows)[0]


@fused("columns")
def add_column_sums(rows: Array, sums: Array) -> None:
    """Add the sum of all rows to `sums`. The caller charges for it."""
    np.add(sums, column_sums(rows), out=sums, dtype=working_dtype(sums.dtype), casting="same_kind")


def add_sums(x: Array, axis: int, sums: Array) -> None:
    """Add the sums of x along an axis to `sums`."""
    dtype = working_dtype(sums.dtype)
    np.add(sums, x.sum(axis=axis, dtype=dtype), out=sums, dtype=dtype, casting="same_kind")
    charge(x.size + sums.size, x.nbytes + 3 * sums.nbytes)


def linear(x: Array, w: Array, b: Array | None = None, out: Array | None = None) -> Array:
    """Returns x @ w + b, in `out`, contiguous, if given: (…, in_features) to (…, out_features)."""
    y = product(as_rows(x), w, None if out is None else as_rows(out), plus=b)
    if b is not None:
        charge(y.size, 2 * y.nbytes + b.nbytes)
    return y.reshape(*x.shape[:-1], w.shape[1])


def linear_backward_input(dy: Array, w: Array, out: Array | None = None) -> Array:
    """Returns dx = dy @ w.T, in `out`, contiguous, if given; the layer before waits for it."""
    return linear(dy, w.T, out=out)


def linear_backward_weight(x: Array, dy: Array, dw: Array, db: Array | None = None) -> None:
    """Add x.T @ dy to dw and the column sums of dy to db, which only the optimizer waits for."""
    x, dy = as_rows(x), as_rows(dy)
    product(x.T, dy, out=dw, plus=dw)
    charge(dw.size, 3 * dw.nbytes)
    if db is not None:
        add_column_sums(dy, db)
        charge(dy.size + db.size, dy.nbytes + 3 * db.nbytes)
