"""Columns: sums over the rows of a matrix; see `simdist.nn.functional.matrix` and `simdist.nn.functional.norm`.

    matrix            parts              sums

    ─┬─ ─┬─
     8 lanes    →    a row of     →     8 lanes
    ─┴─ ─┴─          sums for           of those,
     8 lanes    →    each run           added to
    ─┴─ ─┴─          of rows            what is there

In both passes a lane adds every eighth row, and then the lanes are added in their order. So a sum depends on the shape
alone, and not on which block is done first. The matrix is read once, at the speed of memory.
"""

from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.arrays.kernels.source import compiled, contiguous, width_of
from simdist.arrays.working import rounded, working_dtype

__all__ = ["add_column_products", "add_column_sums"]

_LANES = 8  # of a block; each has 32 threads side by side
_LEAST_ROWS = 32  # of a run
_MOST_PARTS = 256
_SUMS = 1 << 17  # of all parts together: enough blocks to keep the largest GPU busy

_SOURCE = r"""
// A block has 32 packs of columns of a run of rows: sums of x · z if there are two SUMS, and those of x.
template <int SUMS> __device__ inline void parts_of(
    const T* x, const T* z, A* parts, long long rows, long long width, long long rows_each) {
    __shared__ A lanes[SUMS][8][32 * N];
    const int column = threadIdx.x % 32, lane = threadIdx.x / 32;
    const long long packs = width / N, i = blockIdx.x * 32ll + column, first = blockIdx.y * rows_each;
    const long long end = first + rows_each < rows ? first + rows_each : rows;
    A sums[SUMS][N] = {};
    if (i < packs) {
#pragma unroll 4
        for (long long row = first + lane; row < end; row += 8) {
            const Pack<T> p = load(x, row * packs + i), q = SUMS > 1 ? load(z, row * packs + i) : p;
            for (int k = 0; k < N; ++k) {
                if (SUMS > 1) sums[0][k] += widen(p.x[k]) * widen(q.x[k]);
                sums[SUMS - 1][k] += widen(p.x[k]);
            }
        }
    }
    for (int s = 0; s < SUMS; ++s)
        for (int k = 0; k < N; ++k) lanes[s][lane][k * 32 + column] = sums[s][k];
    __syncthreads();
    for (int c = threadIdx.x; c < 32 * N; c += blockDim.x) {
        const long long at = (blockIdx.x * 32ll + c % 32) * N + c / 32;
        for (int s = 0; s < SUMS && at < width; ++s) {
            A sum = 0;
            for (int l = 0; l < 8; ++l) sum += lanes[s][l][c];
            parts[(s * gridDim.y + blockIdx.y) * width + at] = sum;
        }
    }
}

extern "C" __global__ void column_sums(
    const T* x, A* parts, long long rows, long long width, long long rows_each) {
    parts_of<1>(x, x, parts, rows, width, rows_each);
}

extern "C" __global__ void column_products(
    const T* x, const T* z, A* parts, long long rows, long long width, long long rows_each) {
    parts_of<2>(x, z, parts, rows, width, rows_each);
}

// The second dimension of the grid is 1, or 2 for two sums.
extern "C" __global__ void add_parts(const A* parts, T* one, T* two, long long count, long long width) {
    __shared__ A lanes[8][32];
    const int column = threadIdx.x % 32, lane = threadIdx.x / 32;
    const long long i = blockIdx.x * 32ll + column, from = blockIdx.y * count;
    A sum = 0;
    if (i < width) {
#pragma unroll 4
        for (long long part = lane; part < count; part += 8) sum += parts[(from + part) * width + i];
    }
    lanes[lane][column] = sum;
    __syncthreads();
    if (lane || i >= width) return;
    for (int l = 1; l < 8; ++l) sum += lanes[l][column];
    T& y = (blockIdx.y ? two : one)[i];
    set(y, widen(y) + sum);
}
"""


def add_column_sums(rows: Any, sums: Any) -> None:
    """See `simdist.nn.functional.matrix`."""
    _add("column_sums", [rounded(rows, sums.dtype)], [sums])


def add_column_products(dy: Any, z: Any, products: Any, sums: Any = None) -> None:
    """Add the column sums of dy · z to `products`, and those of dy to `sums` if given; both are read once."""
    _add("column_products", [dy, z], [products] if sums is None else [products, sums])


def _add(name: str, matrices: list[Any], to: list[Any]) -> None:
    matrices = [contiguous(x) for x in matrices]
    x, width = matrices[0], len(to[0])
    if not width:
        return
    rows, n = x.size // width, width_of(*matrices, row=width)
    count = max(1, min(_MOST_PARTS, rows // _LEAST_ROWS, _SUMS // width))
    parts = device.empty((len(matrices), count, width), working_dtype(x.dtype))
    sizes = np.int64(rows), np.int64(width), np.int64(-(-rows // count))
    compiled(_SOURCE, name, x.dtype, n)((-(-width // (32 * n)), count), 32 * _LANES, *matrices, parts, *sizes)
    add = compiled(_SOURCE, "add_parts", to[0].dtype)
    add((-(-width // 32), len(to)), 32 * _LANES, parts, to[0], to[-1], np.int64(count), np.int64(width))
