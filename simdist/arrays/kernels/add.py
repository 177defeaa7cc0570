"""Add: one array added to another, 16 bytes at a time; see `simdist.nn.functional.matrix`.

CuPy's own sum of 16-bit numbers reads them one by one, at a quarter of the speed of an H200's memory.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from simdist.arrays.kernels.source import FLOATS, THREADS, blocks_for, compiled, pointwise, run_pointwise, width_of
from simdist.arrays.meter import charge
from simdist.arrays.working import working_dtype

__all__ = ["add", "add_to"]

_SAME = pointwise("add_same", ["T y", "G x"], ["T y"], "y = y + A(x);")

_REPEATED = r"""
// y += x, repeated: whatever a thread adds to is a multiple of x's length further on, so it reads x once.
extern "C" __global__ void add_repeated(T* y, const G* x, long long n, long long length) {
    const long long packs = length / N, all = (long long)gridDim.x * blockDim.x, step = all - all % packs;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (first >= step) return;
    const Pack<G> q = load(x, first % packs);
    for (long long i = first; i < n / N; i += step) {
        Pack<T> p = load(y, i);
        for (int k = 0; k < N; ++k) set(p.x[k], A(widen(p.x[k]) + A(widen(q.x[k]))));
        store(y, i, p);
    }
}
"""


def add(y: Any, x: Any) -> Any:
    """See `simdist.nn.functional`."""
    add_to(y, x)
    charge(y.size, 2 * y.nbytes + x.nbytes)
    return y


def add_to(y: Any, x: Any) -> None:
    """y += x, where x may lack some of y's first axes, in the working dtype of y, rounded once.

    Broadcast otherwise, or not contiguous, they are added by CuPy.
    """
    ends_alike = y.shape[y.ndim - x.ndim :] == x.shape
    if not (ends_alike and _floats(x.dtype, y.dtype) and x.flags.c_contiguous and y.flags.c_contiguous):
        np.add(y, x, out=y, dtype=working_dtype(y.dtype), casting="same_kind")
        return
    if x.size == y.size:
        run_pointwise(_SAME, "add_same", (y, x), dtype=y.dtype, G=x.dtype)
    elif y.size:
        width = width_of(y, x, row=x.size)
        blocks = max(blocks_for(y.size, width), -(-x.size // (THREADS * width)))
        kernel = compiled(_REPEATED, "add_repeated", y.dtype, width, G=x.dtype)
        kernel(blocks, THREADS, y, x, np.int64(y.size), np.int64(x.size))


@lru_cache
def _floats(*dtypes: np.dtype[Any]) -> bool:
    return all(dtype.name in FLOATS for dtype in dtypes)
