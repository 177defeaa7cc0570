"""Loss: softmax and cross-entropy, a block of threads per example; see `simdist.nn.functional.loss`.

    logits     read        top, Σ exp(x - top)      each thread's, rescaled when it meets a larger x; then the block's
                           ── combined over ranks, which rescale their sums ──
    logits     read, p = exp(x - top) / Σ written

Source: Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3: maximum and sum in one pass.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.arrays.kernels.source import compiled, contiguous, pointwise, run_pointwise, threads_for, width_of
from simdist.arrays.meter import charge
from simdist.arrays.working import working_dtype

__all__ = ["cross_entropy", "cross_entropy_backward"]

_SOURCE = r"""
// What exponents are relative to: exp(-Inf - 0) is 0, and exp(-Inf - -Inf) would be NaN.
__device__ inline A base(A top) { return top == -__uint_as_float(0x7f800000u) ? A(0) : top; }

// In one pass: the largest logit (twice), Σ exp(logit - largest), and the target's logit, if it is among these.
extern "C" __global__ void row_sums(
    const T* x, const long long* targets, long long first, A* tops, A* totals, A* hits, long long classes) {
    const T* row = x + blockIdx.x * classes;
    A top = -__uint_as_float(0x7f800000u), sum = 0;
    for (long long i = threadIdx.x; i < classes / N; i += blockDim.x) {
        const Pack<T> p = load(row, i);
        A higher = top;
        for (int k = 0; k < N; ++k) higher = larger(higher, A(widen(p.x[k])));
        sum *= exp(top - base(higher));
        for (int k = 0; k < N; ++k) sum += exp(widen(p.x[k]) - base(higher));
        top = higher;
    }
    const A highest = block_max(top);
    sum = block_sum(sum * exp(top - base(highest)));
    if (threadIdx.x == 0) {
        const long long target = targets[blockIdx.x] - first;
        tops[blockIdx.x] = tops[gridDim.x + blockIdx.x] = highest;
        totals[blockIdx.x] = sum;
        hits[blockIdx.x] = 0 <= target && target < classes ? widen(row[target]) : A(0);
    }
}

extern "C" __global__ void row_softmax(const T* x, const A* tops, const A* totals, A* p, long long classes) {
    const long long row = blockIdx.x * classes;
    const A top = tops[blockIdx.x], factor = 1 / totals[blockIdx.x];
    for (long long i = threadIdx.x; i < classes / N; i += blockDim.x) {
        const Pack<T> from = load(x + row, i);
        Pack<A> to;
        for (int k = 0; k < N; ++k) to.x[k] = exp(widen(from.x[k]) - top) * factor;
        store(p + row, i, to);
    }
}

extern "C" __global__ void row_slope(
    const A* p, const long long* targets, long long first, A scale, T* d, long long classes) {
    const long long row = blockIdx.x * classes, target = targets[blockIdx.x] - first;
    for (long long i = threadIdx.x; i < classes / N; i += blockDim.x) {
        const Pack<A> from = load(p + row, i);
        Pack<T> to;
        for (int k = 0; k < N; ++k) set(to.x[k], from.x[k] * scale - (i * N + k == target ? scale : A(0)));
        store(d + row, i, to);
    }
}
"""
_RESCALED = pointwise("rescaled", ["T total", "T own", "T top"], ["T total"], "total = total * exp(own - top);")


def cross_entropy(
    logits: Any, targets: Any, first: int = 0, combine: Callable[[Any, str], None] = lambda values, op: None
) -> tuple[float, Any]:
    """See `simdist.nn.functional`."""
    rows, classes = logits.shape
    logits = contiguous(logits)
    dtype, targets = working_dtype(logits.dtype), targets.astype(np.int64)
    tops, sums = (device.empty((2, rows), dtype) for _ in range(2))
    (top, own), (totals, hits) = tops, sums
    n, wide = width_of(logits, row=classes), np.int64(classes)
    kernel = compiled(_SOURCE, "row_sums", logits.dtype, n)
    kernel(rows, threads_for(classes, n), logits, targets, np.int64(first), tops, totals, hits, wide)
    combine(top, "max")
    run_pointwise(_RESCALED, "rescaled", (totals, own, top), dtype=dtype)
    combine(sums, "sum")
    p = device.empty(logits.shape, dtype)
    n = width_of(logits, p, row=classes)
    compiled(_SOURCE, "row_softmax", logits.dtype, n)(rows, threads_for(classes, n), logits, top, totals, p, wide)
    charge(5 * logits.size, logits.nbytes + p.nbytes)
    return float((np.log(totals) + (top - hits)).sum(dtype=np.float64)), p


def cross_entropy_backward(p: Any, targets: Any, scale: float, dtype: Any = None, first: int = 0) -> Any:
    """See `simdist.nn.functional`."""
    d = device.empty(p.shape, dtype or p.dtype)
    rows, classes = p.shape
    n = width_of(p, d, row=classes)
    kernel, numbers = compiled(_SOURCE, "row_slope", d.dtype, n), (np.int64(first), p.dtype.type(scale))
    kernel(rows, threads_for(classes, n), p, targets.astype(np.int64), *numbers, d, np.int64(classes))
    charge(p.size, p.nbytes + d.nbytes)
    return d
