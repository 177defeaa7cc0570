"""Matmul: the product of matrices, whatever their dtype, at the speed of the matrix library."""

from typing import Any

import numpy as np

from simdist.arrays.blocks import blocks
from simdist.arrays.working import widened, working_dtype

__all__ = ["matmul"]

_BLOCK_BYTES = 1 << 20  # of one factor's rows: enough of them for the library to be fast, and still in the cache


def matmul(x: Any, w: Any, out: Any, plus: Any = None) -> None:
    """Leave x @ w + plus in `out`.

    The sums over the inner axis, and what is added to them, are in the working dtype, and rounded once. Libraries
    for processors multiply no short numbers (NumPy's own loop is two hundred times slower), so those are widened,
    the rows of x a block at a time.

    Args:
        x, w: shapes (…, m, k) and (…, k, n); axes before the last two are broadcast.
        out: shape (…, m, n).
        plus: nothing; one row, shape (n,); or `out` itself, which is added to.
    """
    if x.dtype == w.dtype == out.dtype == working_dtype(x.dtype):
        if plus is out:
            out += np.matmul(x, w)
        else:
            np.matmul(x, w, out=out)
            if plus is not None:
                out += plus
        return
    w = widened(w)
    for rows in blocks(x.shape[-2], x.shape[-1] * working_dtype(x.dtype).itemsize, like=x, block_bytes=_BLOCK_BYTES):
        y = np.matmul(widened(x[..., rows, :]), w)
        if plus is not None:
            y += out[..., rows, :] if plus is out else plus
        out[..., rows, :] = y
