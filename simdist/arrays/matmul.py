"""Matmul: products of matrices and of rows, whatever their dtype, at the speed of the matrix library."""

from typing import Any

import numpy as np

from simdist.arrays.blocks import blocks
from simdist.arrays.fused import fused
from simdist.arrays.working import widened, working_dtype

__all__ = ["matmul", "vecdot"]

_BLOCK_BYTES = 1 << 20  # of one factor's rows: enough for the library to be fast, few enough for the cache


@fused("matmul")
def matmul(x: Any, w: Any, out: Any = None, plus: Any = None) -> Any:
    """Returns x @ w + plus, in `out` if given.

    Sums are in the working dtype, that with `plus` included, and rounded once. CPU libraries do not multiply 16-bit
    numbers (NumPy's own loop is two hundred times slower), so those are widened, the rows of x a block at a time.

    Args:
        x, w: shapes (…, m, k) and (…, k, n), where w may lack the axes before the last two.
        out: shape (…, m, n); if not given, the result has the dtype of x.
        plus: None; one row, shape (n,) or (…, 1, n); or `out` itself, which is then added to.
    """
    dtype = working_dtype(x.dtype)
    if dtype == x.dtype == w.dtype and (out is None or out.dtype == dtype):
        y = np.matmul(x, w) if out is None or plus is out else np.matmul(x, w, out=out)
        if plus is None:
            return y
        return np.add(y, plus, out=y if out is None else out)
    if out is None:
        out = np.empty_like(x, shape=(*x.shape[:-1], w.shape[-1]))
    w = widened(w)
    for rows in blocks(x.shape[-2], x.shape[-1] * dtype.itemsize, like=x, block_bytes=_BLOCK_BYTES):
        y = np.matmul(widened(x[..., rows, :]), w)
        if plus is not None:
            y += out[..., rows, :] if plus is out else plus
        out[..., rows, :] = y
    return out


@fused("matmul")
def vecdot(x: Any, y: Any) -> Any:
    """The dot product of each row of x, along the last axis, with that of y: shape (…, n) and (…, n) give (…)."""
    return np.vecdot(x, y)
