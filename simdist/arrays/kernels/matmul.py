"""Matmul: products of matrices by cuBLAS, without copies where possible; see `simdist.arrays.matmul`."""

import math
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from simdist import environment
from simdist.arrays import device
from simdist.arrays.kernels.add import add_to
from simdist.arrays.kernels.cast import cast
from simdist.arrays.working import rounded, working_dtype
from simdist.errors import ArrayError

__all__ = ["Layout", "Plan", "matmul", "vecdot"]


class Layout(NamedTuple):
    """How matrices of one shape lie in the device's memory, as cuBLAS takes them.

    Attributes:
        across: whether they are in column-major order.
        pitch: items from one row, or column, to the next.
        stride: items from one matrix to the next.
    """

    across: bool
    pitch: int
    stride: int


class Plan(NamedTuple):
    """How cuBLAS multiplies arrays of some shapes and strides; the same each time.

    Attributes:
        shape: the number of products, and their m, n and k.
        x, w: the layouts of the factors.
        y: the layout of the result.
        copies: which of x, w and y are of a copy, since it cannot use the array.
        types: CUDA's numbers for the types of the factors and of the result.
        computes: cuBLAS's for that of the arithmetic, and where float32 may be rounded to the 19 bits that matrix
            units multiply.
    """

    shape: tuple[int, int, int, int]
    x: Layout
    w: Layout
    y: Layout
    copies: tuple[bool, bool, bool]
    types: tuple[int, int]
    computes: tuple[int, int]


def matmul(x: Any, w: Any, out: Any = None, plus: Any = None, scale: float = 1.0) -> Any:
    """See `simdist.arrays.matmul`: 16-bit factors are multiplied as they are, and summed in float32.

    Transposed factors and parts of larger matrices are used in place; others are copied first. `out` is added before
    the result is rounded, a row afterwards.

    Args:
        scale: a factor of the product, before anything is added.

    Raises:
        ArrayError: the shapes do not fit each other, or the numbers are no floats.
    """
    if out is None:
        out = device.empty((*x.shape[:-1], w.shape[-1]), x.dtype)  # in row-major order, whatever that of x
    if x.dtype != w.dtype:
        dtype = np.promote_types(working_dtype(x.dtype), working_dtype(w.dtype))
        x, w = rounded(x, dtype), rounded(w, dtype)
    add = plus is out
    plan = _plan(x.shape, x.strides, w.shape, w.strides, x.dtype, out.shape, out.strides, out.dtype)
    count, m, n, k = plan.shape
    if not (count and m and n):
        return out
    if plan.copies[2]:
        wide = matmul(x, w, device.empty(out.shape, working_dtype(x.dtype)), None if add else plus, scale)
        (add_to if add else cast)(out, wide)
        return out
    if k:
        x, w = x.copy() if plan.copies[0] else x, w.copy() if plan.copies[1] else w
        exact, fast = plan.computes
        compute = fast if exact != fast and environment.tf32() else exact
        device.gemm(plan, x, w, out, _factors(scale, add, exact), compute)
    elif not add:
        out[...] = 0
    if plus is not None and not add:
        add_to(out, plus)
    return out


def vecdot(x: Any, y: Any) -> Any:
    """See `simdist.arrays.matmul`: CuPy has no such function."""
    return (x * y).sum(axis=-1)


_Ints: TypeAlias = tuple[int, ...]
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # CUDA's library_types.h
_COMPUTES = {2: (68, 68), 4: (68, 77), 8: (70, 70)}  # cublas_api.h: COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F


@lru_cache(maxsize=4096)
def _plan(
    x: _Ints, x_steps: _Ints, w: _Ints, w_steps: _Ints, dtype: Any, y: _Ints, y_steps: _Ints, y_dtype: Any
) -> Plan:
    """The plan for shapes, the bytes from one item to the next along each axis, and dtypes."""
    batch = x[:-2]
    if min(len(x), len(w)) < 2 or w[:-2] not in ((), batch) or x[-1] != w[-2] or y != (*x[:-1], w[-1]):
        raise ArrayError(f"{x} times {w} in {y}; needs (…, m, k) times (k, n) or (…, k, n) in (…, m, n)")
    if dtype.name not in _TYPES:
        raise ArrayError(f"no product of {dtype}; needs {', '.join(_TYPES)}")
    target = _layout(y, y_steps, y_dtype.itemsize, batch)
    itemsize, same = dtype.itemsize, y_dtype == dtype
    aside = target is None or target.across or not (same or (itemsize == 2 and y_dtype == np.float32))
    first, second = _layout(x, x_steps, itemsize, batch), _layout(w, w_steps, itemsize, batch)
    return Plan(
        (math.prod(batch), x[-2], w[-1], x[-1]),
        first or _compact(x),
        second or _compact(w),
        target or _compact(y),
        (first is None, second is None, aside),
        (_TYPES[dtype.name], _TYPES.get(y_dtype.name, -1)),
        _COMPUTES[itemsize],
    )


@lru_cache
def _factors(scale: float, add: bool, compute: int) -> tuple[Any, int, int]:
    """Both factors in host memory, of the type of the arithmetic, and their addresses."""
    both = np.array([scale, add], np.float64 if compute == _COMPUTES[8][0] else np.float32)
    return both, both.ctypes.data, both.ctypes.data + both.itemsize


def _compact(shape: _Ints) -> Layout:
    """Of a contiguous array."""
    rows, columns = shape[-2:]
    return Layout(False, columns, rows * columns)


def _layout(shape: _Ints, steps: _Ints, itemsize: int, batch: _Ints) -> Layout | None:
    """The layout of matrices; None if cuBLAS cannot use it: neither rows nor columns are contiguous."""
    rows, columns = shape[-2:]
    *outer, down, right = (step // itemsize for step in steps)
    stride = _stride(shape[:-2], outer, batch)
    if stride is None:
        return None
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return Layout(False, down if rows > 1 else columns, stride)
    if (down == 1 or rows == 1) and right >= rows:
        return Layout(True, right if columns > 1 else rows, stride)
    return None


def _stride(shape: _Ints, steps: list[int], batch: _Ints) -> int | None:
    """The items from one matrix to the next, if the same throughout a batch, else None; 0 where all share one."""
    if not shape:
        return 0
    if shape != batch:
        return None
    stride, span = None, 0
    for length, step in zip(reversed(shape), reversed(steps), strict=True):
        if length == 1:
            continue
        if stride is None:
            stride = step
        elif step != span:
            return None
        span = step * length
    return stride or 0
