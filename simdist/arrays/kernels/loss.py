"""Loss: softmax and cross-entropy, a block of threads per example; see `simdist.nn.functional.loss`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simdist.arrays.kernels.source import THREADS, compiled
from simdist.arrays.meter import charge
from simdist.arrays.working import working_dtype

__all__ = ["cross_entropy", "cross_entropy_backward"]

_SOURCE = r"""
extern "C" __global__ void row_max(const T* x, A* top, long long classes) {
    const T* row = x + blockIdx.x * classes;
    A most = classes ? widen(row[0]) : A(0);
    for (long long i = threadIdx.x; i < classes; i += blockDim.x) most = larger(most, A(widen(row[i])));
    most = block_max(most);
    if (threadIdx.x == 0) top[blockIdx.x] = most;
}

// p = exp(x - top), its sum over these classes, and x - top of the target, if it is among them.
extern "C" __global__ void row_exp(
    const T* x, const A* top, const long long* targets, long long first, A* p, A* totals, A* hits, long long classes) {
    const long long row = blockIdx.x * classes, target = targets[blockIdx.x] - first;
    A sum = 0;
    for (long long i = threadIdx.x; i < classes; i += blockDim.x) {
        const A far = widen(x[row + i]) - top[blockIdx.x];
        const A e = exp(far);
        p[row + i] = e;
        sum += e;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        totals[blockIdx.x] = sum;
        hits[blockIdx.x] = 0 <= target && target < classes ? widen(x[row + target]) - top[blockIdx.x] : A(0);
    }
}

extern "C" __global__ void row_slope(
    const A* p, const long long* targets, long long first, A scale, T* d, long long classes) {
    const long long row = blockIdx.x * classes, target = targets[blockIdx.x] - first;
    for (long long i = threadIdx.x; i < classes; i += blockDim.x)
        set(d[row + i], p[row + i] * scale - (i == target ? scale : A(0)));
}
"""


def cross_entropy(
    logits: Any, targets: Any, first: int = 0, combine: Callable[[Any, str], None] = lambda values, op: None
) -> tuple[float, Any]:
    """See `simdist.nn.functional`."""
    rows, classes = logits.shape
    logits = logits if logits.flags.c_contiguous else logits.copy()
    dtype, wide, targets = working_dtype(logits.dtype), np.int64(classes), targets.astype(np.int64)
    top = np.empty_like(logits, shape=rows, dtype=dtype)
    compiled(_SOURCE, "row_max", logits.dtype)(rows, THREADS, logits, top, wide)
    combine(top, "max")
    p, sums = np.empty_like(logits, dtype=dtype), np.empty_like(logits, shape=(2, rows), dtype=dtype)
    totals, hits = sums
    kernel = compiled(_SOURCE, "row_exp", logits.dtype)
    kernel(rows, THREADS, logits, top, targets, np.int64(first), p, totals, hits, wide)
    combine(sums, "sum")
    p /= totals[:, None]
    charge(5 * logits.size, logits.nbytes + p.nbytes)
    return float((np.log(totals) - hits).sum(dtype=np.float64)), p


def cross_entropy_backward(p: Any, targets: Any, scale: float, dtype: Any = None, first: int = 0) -> Any:
    """See `simdist.nn.functional`."""
    d = np.empty_like(p, dtype=dtype or p.dtype)
    kernel = compiled(_SOURCE, "row_slope", d.dtype)
    rows, classes = p.shape
    kernel(rows, THREADS, p, targets.astype(np.int64), np.int64(first), p.dtype.type(scale), d, np.int64(classes))
    charge(p.size, p.nbytes + d.nbytes)
    return d
