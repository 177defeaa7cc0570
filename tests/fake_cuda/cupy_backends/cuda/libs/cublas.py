"""cuBLAS' product of many matrices, column by column, by NumPy."""

import ml_dtypes
import numpy as np
from cupy.cuda import Stream, at

_TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
_COMPUTES = {68: np.float32, 77: np.float32, 70: np.float64}


def _matrix(ptr, dtype, rows, columns, pitch):
    """A matrix that lies column by column."""
    assert pitch >= max(1, rows), (pitch, rows)
    items = at(ptr, pitch * (columns - 1) + rows, dtype)
    step = np.dtype(dtype).itemsize
    return np.lib.stride_tricks.as_strided(items, (rows, columns), (step, step * pitch))


def gemmStridedBatchedEx(
    handle, transa, transb, m, n, k, alpha, a, atype, lda, stride_a,
    b, btype, ldb, stride_b, beta, c, ctype, ldc, stride_c, count, compute, algo,
):  # fmt: skip
    Stream.null.synchronize()
    kinds, wide = [_TYPES[i] for i in (atype, btype, ctype)], _COMPUTES[compute]
    assert kinds[0] is kinds[1] and (kinds[2] is kinds[0] or kinds[2] is np.float32)
    alpha, beta = (at(ptr, 1, wide)[0] for ptr in (alpha, beta))
    sizes = [np.dtype(kind).itemsize for kind in kinds]
    for i in range(count):
        left = _matrix(a + i * stride_a * sizes[0], kinds[0], *((k, m) if transa else (m, k)), lda).astype(wide)
        right = _matrix(b + i * stride_b * sizes[1], kinds[1], *((n, k) if transb else (k, n)), ldb).astype(wide)
        out = _matrix(c + i * stride_c * sizes[2], kinds[2], m, n, ldc)
        product = alpha * ((left.T if transa else left) @ (right.T if transb else right))
        out[...] = product + beta * out.astype(wide) if beta else product
