"""Flash: attention whose scores never leave the chip, for 16-bit numbers; see `simdist.nn.functional.flash`.

A block of four warps has 64 or 128 queries in its registers, 16 or 32 a warp. Tiles of keys and values pass through its
shared memory: while one is multiplied, the next is on its way.

    s = q kᵀ / √e    p = exp(s - top)    y = y exp(top before - top) + p v    then y / Σ p, and lse = top + log Σ p

`flash_backward` has the other direction.

Source: Dao 2023, FlashAttention-2, arXiv 2307.08691, algorithm 1 and section 3.3.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.arrays.kernels.source import compiled, width_of
from simdist.arrays.kernels.tiles import on_tiles
from simdist.arrays.kernels.units import LEAST_CAPABILITY
from simdist.arrays.meter import charge
from simdist.arrays.qkv import widths

__all__ = ["HEADS", "THREADS", "flash_attention", "num_pairs", "numbers", "queries_of", "takes"]

THREADS = 128
"""Of a block."""
_WIDEST = 128  # features of a head; sums of wider ones do not fit the registers
_LONGEST = 65535 * 64  # tokens: a grid has no more blocks in its second dimension, each of 64 queries or keys at least

HEADS = r"""
constexpr int M = D > 64 ? 1 : 2;         // 16 M queries a warp
constexpr int TILE = D > 64 ? 32 : 64;    // rows of a tile
constexpr float LN2 = 0.69314718f;

// Where a head's query, key and value begin in a row of qkv. Heads of a group share a key and a value.
struct Place { long long q, k, v, pitch; };
__device__ inline Place place(int sample, int head, int heads, int per_group, int t) {
    const long long row = (long long)(per_group + 2) * D, pitch = heads / per_group * row;
    const long long group = (long long)sample * t * pitch + head / per_group * row;
    return {group + head % per_group * D, group + per_group * D, group + (per_group + 1) * D, pitch};
}

// Set scores to -∞ where the key comes after the query: queries are rows and keys columns, or the other way round.
template <bool QUERIES_ARE_ROWS, int R, int C>
__device__ inline void hide_later_keys(float (&s)[R][C / 8][4], int first_row, int first_column) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int m = 0; m < R; ++m)
#pragma unroll
        for (int n = 0; n < C / 8; ++n)
            for (int i = 0; i < 4; ++i) {
                const int row = first_row + warp * 16 * R + m * 16 + i / 2 * 8 + lane / 4;
                const int column = first_column + n * 8 + lane % 4 * 2 + i % 2;
                if (QUERIES_ARE_ROWS ? column > row : row > column) s[m][n][i] = -1.0f / 0.0f;
            }
}
"""
"""How heads are cut into tiles, and where they are."""

_SOURCE = (
    HEADS
    + r"""
extern "C" __global__ void __launch_bounds__(128) attend(
    const T* qkv, T* y, float* lse, int t, int heads, int per_group, float scale) {
    constexpr int QUERIES = 64 * M;
    alignas(16) __shared__ T tiles[2][2][TILE * P];  // k and v, twice; first q
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sample = blockIdx.x / heads, head = blockIdx.x % heads;
    const int first = (gridDim.y - 1 - blockIdx.y) * QUERIES, seen = min(first + QUERIES, t);
    const Place at = place(sample, head, heads, per_group, t);
    unsigned q[M][D / 16][4];
    fetch(tiles[0][0], qkv + at.q, at.pitch, first, QUERIES, t);
    await_copies();
    __syncthreads();
    load_left(q, tiles[0][0]);
    __syncthreads();
    float o[M][D / 8][4] = {}, top[M][2], total[M][2] = {};
    for (int m = 0; m < M; ++m) top[m][0] = top[m][1] = -1.0f / 0.0f;
    fetch(tiles[0][0], qkv + at.k, at.pitch, 0, TILE, t);
    fetch(tiles[0][1], qkv + at.v, at.pitch, 0, TILE, t);
    for (int key = 0, now = 0; key < seen; key += TILE, now ^= 1) {
        await_copies();
        __syncthreads();
        if (key + TILE < seen) {
            fetch(tiles[now ^ 1][0], qkv + at.k, at.pitch, key + TILE, TILE, t);
            fetch(tiles[now ^ 1][1], qkv + at.v, at.pitch, key + TILE, TILE, t);
        }
        float s[M][TILE / 8][4];
        products<M, TILE>(s, q, tiles[now][0]);
        if (key + TILE > first) hide_later_keys<true, M, TILE>(s, first, key);
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float higher = top[m][r], sum = 0;
#pragma unroll
                for (int n = 0; n < TILE / 8; ++n)
                    for (int i = 0; i < 2; ++i) higher = fmaxf(higher, s[m][n][2 * r + i]);
                higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 1));
                higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 2));
                const float shrink = power((top[m][r] - higher) * scale), shift = -higher * scale;
#pragma unroll
                for (int n = 0; n < TILE / 8; ++n)
                    for (int i = 0; i < 2; ++i) {
                        float& x = s[m][n][2 * r + i];
                        sum += x = power(fmaf(x, scale, shift));
                    }
                top[m][r] = higher;
                total[m][r] = total[m][r] * shrink + sum;
#pragma unroll
                for (int n = 0; n < D / 8; ++n)
                    for (int i = 0; i < 2; ++i) o[m][n][2 * r + i] *= shrink;
            }
        add_products<M, TILE>(o, s, tiles[now][1]);
    }
    for (int m = 0; m < M; ++m)
        for (int r = 0; r < 2; ++r) {
            float& sum = total[m][r];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const int query = first + warp * 16 * M + m * 16 + r * 8 + lane / 4;
            if (query < t && lane % 4 == 0)
                lse[(long long)blockIdx.x * t + query] = (top[m][r] * scale + log2f(sum)) * LN2;
            sum = 1 / sum;
        }
    store(y + ((long long)sample * t * heads + head) * D, (long long)heads * D, o, total, first, t);
}
"""
)


def takes(qkv: Any, heads: int, groups: int, value_width: int | None) -> bool:
    """Whether these kernels compute the attention of qkv: of 16-bit numbers, heads of 16, 32, … 128 features."""
    e, w = widths(qkv.shape[-1], heads, groups, value_width)
    fit = qkv.dtype.itemsize == 2 and e == w and e % 16 == 0 and e <= _WIDEST
    fit = fit and qkv.size > 0 and qkv.shape[1] <= _LONGEST
    return fit and qkv.flags.c_contiguous and width_of(qkv) == 8 and device.capability() >= LEAST_CAPABILITY


def flash_attention(qkv: Any, heads: int, groups: int) -> tuple[Any, Any]:
    """y and lse, for qkv that `takes` accepts; see `simdist.nn.functional`."""
    n, t, _ = qkv.shape
    e, _ = widths(qkv.shape[-1], heads, groups)
    y = device.empty((n, t, heads * e), qkv.dtype)
    lse = device.empty((n, heads, t), np.float32)
    grid = n * heads, -(-t // queries_of(e))
    compiled(on_tiles(_SOURCE, e), "attend", qkv.dtype)(grid, THREADS, qkv, y, lse, *numbers(t, heads, groups, e))
    charge((4 * e + 7) * num_pairs(n, heads, t, queries_of(e)), qkv.nbytes + y.nbytes + lse.nbytes)
    return y, lse


def queries_of(e: int) -> int:
    """The queries of a block."""
    return 64 if e > 64 else 128


def numbers(t: int, heads: int, groups: int, e: int) -> tuple[Any, ...]:
    """Of the kernels: exponents have base 2."""
    return np.int32(t), np.int32(heads), np.int32(heads // groups), np.float32(math.log2(math.e) / math.sqrt(e))


@lru_cache(maxsize=256)
def num_pairs(n: int, heads: int, t: int, size: int) -> int:
    """The pairs of query and key that are multiplied, by blocks of `size` queries that skip later keys."""
    return n * heads * sum(min(size, t - i) * min(i + size, t) for i in range(0, t, size))
