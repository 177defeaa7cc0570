"""Matmul: products of matrices by cuBLAS, without copies where possible; see `simdist.arrays.matmul`."""

from typing import Any, NamedTuple

import numpy as np

from simdist import environment
from simdist.arrays import device
from simdist.arrays.kernels.add import add_to
from simdist.arrays.working import widened

__all__ = ["Matrices", "matmul", "vecdot"]


class Matrices(NamedTuple):
    """Matrices of one shape in the device's memory, as cuBLAS takes them.

    Attributes:
        x: the array, which begins with the first matrix.
        across: whether they are in column-major order.
        pitch: items from one row, or column, to the next.
        stride: items from one matrix to the next.
    """

    x: Any
    across: bool
    pitch: int
    stride: int


def matmul(x: Any, w: Any, out: Any = None, plus: Any = None, scale: float = 1.0) -> Any:
    """See `simdist.arrays.matmul`: 16-bit factors are multiplied as they are, and summed in float32.

    Transposed factors and parts of larger matrices are used in place; others are copied first. `out` is added before
    the result is rounded, a row afterwards.

    Args:
        scale: a factor of the product, before anything is added.
    """
    if x.dtype != w.dtype:
        x, w = widened(x), widened(w)
    (m, k), n = x.shape[-2:], w.shape[-1]
    batch = x.shape[:-2]
    if out is None:
        out = device.empty((*batch, m, n), x.dtype)  # in row-major order, whatever that of x
    if not out.size:
        return out
    add = plus is out
    target = _matrices(out, batch)
    if target is None or target.across or (out.dtype != x.dtype and out.dtype != np.float32):
        y = matmul(x, w, scale=scale)
        return np.add(y, out if add else 0 if plus is None else plus, out=out, casting="same_kind")
    if k:
        shape = int(np.prod(batch, dtype=np.int64)), m, n, k
        device.gemm(shape, _laid(x, batch), _laid(w, batch), target, scale, add, environment.tf32())
    elif not add:
        out[...] = 0
    if plus is not None and not add:
        add_to(out, plus)
    return out


def vecdot(x: Any, y: Any) -> Any:
    """See `simdist.arrays.matmul`: CuPy has no such function."""
    return (x * y).sum(axis=-1)


def _laid(x: Any, batch: tuple[int, ...]) -> Matrices:
    """A factor in place, or a copy."""
    rows, columns = x.shape[-2:]
    return _matrices(x, batch) or Matrices(x.copy(), False, max(columns, 1), rows * columns)


def _matrices(x: Any, batch: tuple[int, ...]) -> Matrices | None:
    """The layout of the matrices of x; None if cuBLAS cannot use it: neither rows nor columns are contiguous."""
    rows, columns = x.shape[-2:]
    *outer, down, right = (step // x.itemsize for step in x.strides)
    stride = _stride(x.shape[:-2], outer, batch)
    if stride is None:
        return None
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return Matrices(x, False, max(down, columns, 1) if rows > 1 else max(columns, 1), stride)
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return Matrices(x, True, max(right, rows, 1) if columns > 1 else max(rows, 1), stride)
    return None


def _stride(shape: tuple[int, ...], steps: list[int], batch: tuple[int, ...]) -> int | None:
    """The items from one matrix to the next, if the same throughout a batch, else None; 0 where all share one."""
    if not shape:
        return 0
    if shape != batch:
        return None
    stride, span = 0, 0
    for length, step in zip(reversed(shape), reversed(steps), strict=True):
        if length == 1:
            continue
        if not span:
            stride = step
        elif step != span:
            return None
        span = step * length
    return stride
