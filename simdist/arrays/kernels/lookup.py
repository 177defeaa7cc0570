"""Lookup: the gradient of a table of vectors; see `simdist.nn.functional.lookup`."""

from typing import Any

import numpy as np

from simdist.arrays.kernels.source import compiled, contiguous, threads_for, width_of
from simdist.arrays.meter import charge
from simdist.arrays.working import rounded

__all__ = ["embedding_backward"]

_SOURCE = r"""
// sorted   3  3  5  8  8  8     A block has a position in it, and some packs of the width. Where a run of one entry
//          ^     ^  ^           begins, it adds the run's rows in order; the blocks of other positions have no work.
extern "C" __global__ void gather_rows(
    const long long* sorted, const long long* order, const T* dy, T* dtable,
    long long rows, long long entries, long long width) {
    const long long first = blockIdx.x, entry = sorted[first], packs = width / N;
    const long long i = (long long)blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= packs || entry < 0 || entry >= entries || (first && sorted[first - 1] == entry)) return;
    long long end = first + 1, high = rows;
    while (end < high) {
        const long long middle = (end + high) / 2;
        if (sorted[middle] == entry) end = middle + 1; else high = middle;
    }
    A sums[N] = {};
#pragma unroll 4
    for (long long row = first; row < end; ++row) {
        const Pack<T> p = load(dy, order[row] * packs + i);
        for (int k = 0; k < N; ++k) sums[k] += widen(p.x[k]);
    }
    Pack<T> q = load(dtable, entry * packs + i);
    for (int k = 0; k < N; ++k) set(q.x[k], widen(q.x[k]) + sums[k]);
    store(dtable, entry * packs + i, q);
}
"""


def embedding_backward(indices: Any, dy: Any, dtable: Any) -> None:
    """See `simdist.nn.functional`: the rows of an entry are added in order."""
    entries, width = dtable.shape
    flat = indices.reshape(-1).astype(np.int64)
    order = np.argsort(flat, kind="stable").astype(np.int64)
    rows = contiguous(rounded(dy.reshape(-1, width), dtable.dtype))
    n = width_of(rows, dtable, row=width)
    threads = threads_for(width, n)
    grid, sizes = (len(flat), -(-width // (threads * n))), map(np.int64, (len(flat), entries, width))
    compiled(_SOURCE, "gather_rows", dtable.dtype, n)(grid, threads, flat[order], order, rows, dtable, *sizes)
    charge(dy.size, 3 * dy.nbytes + 3 * min(entries, len(flat)) * width * dtable.itemsize)
