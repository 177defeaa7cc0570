"""Tiles: products of rows in the registers of a block's warps with tiles of rows in its shared memory.

    a    16 R rows of D items a warp        products        s = a tileᵀ    (16 R, rows of the tile)
    y    16 R rows of D sums                add_products    y += s tile    (16 R, D)

The kernels that use this set T, to a type of 16 bits, and D, to a multiple of 16.
"""

from functools import lru_cache

from simdist.arrays.kernels.units import UNITS

__all__ = ["on_tiles"]

_TILES = r"""
constexpr int P = D + 8;                  // items of a row in shared memory: eight rows begin in different banks

// Start to copy `rows` rows of D items, pitch apart, from row `first` on; zeros from row `end` on.
__device__ inline void fetch(T* tile, const T* x, long long pitch, int first, int rows, int end) {
    for (int i = threadIdx.x; i < rows * (D / 8); i += blockDim.x) {
        const int row = i / (D / 8), column = i % (D / 8) * 8;
        const bool there = first + row < end;
        copy16(tile + row * P + column, x + (there ? (first + row) * pitch : 0) + column, there);
    }
}

// The rows of a warp as factors on the left, from a tile of the rows of all warps.
template <int R> __device__ inline void load_left(unsigned (&a)[R][D / 16][4], const T* tile) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int m = 0; m < R; ++m)
        for (int k = 0; k < D / 16; ++k)
            load(a[m][k], tile + (warp * 16 * R + m * 16 + lane % 16) * P + k * 16 + lane / 16 * 8);
}

// s = a · the rows of a tile
template <int R, int C>
__device__ inline void products(float (&s)[R][C / 8][4], const unsigned (&a)[R][D / 16][4], const T* tile) {
    const T* row = tile + (threadIdx.x % 8 + threadIdx.x / 16 % 2 * 8) * P + threadIdx.x / 8 % 2 * 8;
#pragma unroll
    for (int m = 0; m < R; ++m)
        for (int n = 0; n < C / 8; ++n)
            for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
#pragma unroll
        for (int n = 0; n < C / 16; ++n) {
            unsigned b[4];
            load(b, row + n * 16 * P + k * 16);
#pragma unroll
            for (int m = 0; m < R; ++m) {
                multiply(s[m][2 * n], a[m][k], b, T());
                multiply(s[m][2 * n + 1], a[m][k], b + 2, T());
            }
        }
}

// y += s, rounded, @ a tile
template <int R, int C>
__device__ inline void add_products(float (&y)[R][D / 8][4], const float (&s)[R][C / 8][4], const T* tile) {
    const T* row = tile + threadIdx.x % 16 * P + threadIdx.x / 16 % 2 * 8;
#pragma unroll
    for (int k = 0; k < C / 16; ++k) {
        unsigned a[R][4];
#pragma unroll
        for (int m = 0; m < R; ++m)
            for (int i = 0; i < 4; ++i) {
                const float* from = s[m][2 * k + i / 2] + i % 2 * 2;
                a[m][i] = pair(from[0], from[1], T());
            }
#pragma unroll
        for (int n = 0; n < D / 16; ++n) {
            unsigned b[4];
            load_transposed(b, row + k * 16 * P + n * 16);
#pragma unroll
            for (int m = 0; m < R; ++m) {
                multiply(y[m][2 * n], a[m], b, T());
                multiply(y[m][2 * n + 1], a[m], b + 2, T());
            }
        }
    }
}

// Write the rows of all warps, `first` and on, but none from `end` on, each times a factor.
template <int R>
__device__ inline void store(
    T* to, long long pitch, float (&y)[R][D / 8][4], const float (&by)[R][2], int first, int end) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int m = 0; m < R; ++m)
        for (int r = 0; r < 2; ++r) {
            const int row = first + warp * 16 * R + m * 16 + r * 8 + lane / 4;
            if (row >= end) continue;
            for (int n = 0; n < D / 8; ++n) {
                const float* from = y[m][n] + 2 * r;
                const unsigned both = pair(from[0] * by[m][r], from[1] * by[m][r], T());
                *reinterpret_cast<unsigned*>(to + row * pitch + n * 8 + lane % 4 * 2) = both;
            }
        }
}
"""


@lru_cache(maxsize=64)
def on_tiles(source: str, width: int) -> str:
    """The source of kernels that multiply tiles, for rows of `width` items."""
    return f"{UNITS}\nconstexpr int D = {width};\n{_TILES}\n{source}"
