"""Lookup: the gradient of a table of vectors, and vectors of positions; see `simdist.nn.functional.lookup`."""

from typing import Any

import numpy as np

from simdist.arrays.kernels.add import add_to
from simdist.arrays.kernels.source import THREADS, compiled
from simdist.arrays.meter import charge
from simdist.arrays.working import rounded

__all__ = ["embedding_backward", "positions"]

_SOURCE = r"""
// A block has some columns of one entry. Sorted by entry, that entry's rows are one run, found by binary search.
extern "C" __global__ void gather_rows(
    const long long* sorted, const long long* order, const T* dy, T* dtable, long long rows, long long width) {
    const long long entry = blockIdx.x, i = (long long)blockIdx.y * blockDim.x + threadIdx.x;
    long long ends[2];
    for (int side = 0; side < 2; ++side) {
        long long low = 0, high = rows;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (sorted[middle] < entry + side) low = middle + 1; else high = middle;
        }
        ends[side] = low;
    }
    if (i >= width || ends[0] == ends[1]) return;
    A sum = 0;
    for (long long row = ends[0]; row < ends[1]; ++row) sum += widen(dy[order[row] * width + i]);
    set(dtable[entry * width + i], widen(dtable[entry * width + i]) + sum);
}
"""


def embedding_backward(indices: Any, dy: Any, dtable: Any) -> None:
    """See `simdist.nn.functional`: the rows of an entry are added in order."""
    entries, width = dtable.shape
    flat = indices.reshape(-1).astype(np.int64)
    order = np.argsort(flat, kind="stable").astype(np.int64)
    rows = rounded(dy.reshape(-1, width), dtable.dtype)
    rows = rows if rows.flags.c_contiguous else rows.copy()
    grid, sizes = (entries, -(-width // THREADS)), (np.int64(len(flat)), np.int64(width))
    compiled(_SOURCE, "gather_rows", dtable.dtype)(grid, THREADS, flat[order], order, rows, dtable, *sizes)
    charge(dy.size, 3 * dy.nbytes + 3 * min(entries, len(flat)) * width * dtable.itemsize)


def positions(x: Any, table: Any) -> Any:
    """See `simdist.nn.functional`."""
    vectors = table[: x.shape[1]]
    add_to(x, vectors)
    charge(x.size, 2 * x.nbytes + vectors.nbytes)
    return x
