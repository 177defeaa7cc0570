"""Flash backward: the derivatives by queries, keys and values, from y and lse; see `flash`.

    slopes_of_keys       s = k qᵀ / √e   p = exp(s - lse)   d = v dyᵀ   ds = p (d - y · dy)   dv += p dy   dk += ds q
    slopes_of_queries    s = q kᵀ / √e   p                  d = dy vᵀ   ds                    dq += ds k

Each block writes rows of its own, keys or queries, so s and d are computed twice: seven products instead of five, but
sums are always in the same order. p and ds are rounded to 16 bits before they are multiplied; dk and dq are divided by
√e at the end.

Source: Dao 2023, FlashAttention-2, arXiv 2307.08691, algorithm 2.
"""

from typing import Any

from simdist.arrays import device
from simdist.arrays.kernels.flash import HEADS, THREADS, num_pairs, numbers, queries_of
from simdist.arrays.kernels.heads import dots
from simdist.arrays.kernels.source import compiled, width_of
from simdist.arrays.kernels.tiles import on_tiles
from simdist.arrays.meter import charge

__all__ = ["flash_attention_backward"]

_KEYS = 64  # of a block, as in the kernel

_SOURCE = (
    HEADS
    + r"""
constexpr float LOG2E = 1.44269504f;

extern "C" __global__ void __launch_bounds__(128) slopes_of_keys(
    const T* qkv, const T* dy, const float* lse, const float* sums, T* dqkv, int t, int heads, int per_group,
    float scale) {
    constexpr int KEYS = 64;
    alignas(16) __shared__ T tiles[2][2][TILE * P];  // q and dy, twice; first k and v
    __shared__ float of_queries[2][2][TILE];         // lse and sums, twice
    const int lane = threadIdx.x % 32, groups = heads / per_group;
    const int sample = blockIdx.x / groups, group = blockIdx.x % groups, first = blockIdx.y * KEYS;
    const long long wide = (long long)heads * D;
    unsigned k[1][D / 16][4], v[1][D / 16][4];
    T* all = tiles[0][0];
    Place at = place(sample, group * per_group, heads, per_group, t);
    fetch(all, qkv + at.k, at.pitch, first, KEYS, t);
    fetch(all + KEYS * P, qkv + at.v, at.pitch, first, KEYS, t);
    await_copies();
    __syncthreads();
    load_left(k, all);
    load_left(v, all + KEYS * P);
    __syncthreads();
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    auto start = [&](int head, int query, int now) {
        const Place of = place(sample, head, heads, per_group, t);
        const long long row = ((long long)sample * heads + head) * t;
        fetch(tiles[now][0], qkv + of.q, of.pitch, query, TILE, t);
        fetch(tiles[now][1], dy + ((long long)sample * t * heads + head) * D, wide, query, TILE, t);
        for (int i = threadIdx.x; i < TILE; i += blockDim.x) {
            const bool there = query + i < t;
            copy4(&of_queries[now][0][i], lse + (there ? row + query + i : 0), there);
            copy4(&of_queries[now][1][i], sums + (there ? row + query + i : 0), there);
        }
    };
    int head = group * per_group, query = first, now = 0;
    start(head, query, now);
    while (head < (group + 1) * per_group) {
        const bool last = query + TILE >= t;
        const int next_head = head + last, next_query = last ? first : query + TILE;
        await_copies();
        __syncthreads();
        if (next_head < (group + 1) * per_group) start(next_head, next_query, now ^ 1);
        float s[1][TILE / 8][4], d[1][TILE / 8][4];
        products<1, TILE>(s, k, tiles[now][0]);
        products<1, TILE>(d, v, tiles[now][1]);
        if (query < first + KEYS) hide_later_keys<false, 1, TILE>(s, first, query);
#pragma unroll
        for (int n = 0; n < TILE / 8; ++n)
            for (int i = 0; i < 4; ++i) {
                const int column = n * 8 + lane % 4 * 2 + i % 2;
                float& p = s[0][n][i];
                p = power(fmaf(p, scale, -of_queries[now][0][column] * LOG2E));
                d[0][n][i] = p * (d[0][n][i] - of_queries[now][1][column]);
            }
        add_products<1, TILE>(dv, s, tiles[now][1]);
        add_products<1, TILE>(dk, d, tiles[now][0]);
        head = next_head, query = next_query, now ^= 1;
    }
    const float by[1][2] = {{scale * LN2, scale * LN2}}, one[1][2] = {{1, 1}};
    store(dqkv + at.k, at.pitch, dk, by, first, t);
    store(dqkv + at.v, at.pitch, dv, one, first, t);
}

extern "C" __global__ void __launch_bounds__(128) slopes_of_queries(
    const T* qkv, const T* dy, const float* lse, const float* sums, T* dqkv, int t, int heads, int per_group,
    float scale) {
    constexpr int QUERIES = 64 * M, KEYS = 32;
    alignas(16) __shared__ T tiles[2 * QUERIES * P];  // k and v, twice; first q and dy
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sample = blockIdx.x / heads, head = blockIdx.x % heads;
    const int first = (gridDim.y - 1 - blockIdx.y) * QUERIES, seen = min(first + QUERIES, t);
    const Place at = place(sample, head, heads, per_group, t);
    unsigned q[M][D / 16][4], d[M][D / 16][4];
    fetch(tiles, qkv + at.q, at.pitch, first, QUERIES, t);
    const long long row = (long long)sample * t * heads + head;
    fetch(tiles + QUERIES * P, dy + row * D, (long long)heads * D, first, QUERIES, t);
    await_copies();
    __syncthreads();
    load_left(q, tiles);
    load_left(d, tiles + QUERIES * P);
    __syncthreads();
    float dq[M][D / 8][4] = {}, shift[M][2], sum[M][2], by[M][2];
    for (int m = 0; m < M; ++m)
        for (int r = 0; r < 2; ++r) {
            const int query = first + warp * 16 * M + m * 16 + r * 8 + lane / 4;
            const long long at_query = (long long)blockIdx.x * t + query;
            shift[m][r] = query < t ? -lse[at_query] * LOG2E : 0;
            sum[m][r] = query < t ? sums[at_query] : 0;
            by[m][r] = scale * LN2;
        }
    auto start = [&](int key, int now) {
        fetch(tiles + (2 * now) * KEYS * P, qkv + at.k, at.pitch, key, KEYS, t);
        fetch(tiles + (2 * now + 1) * KEYS * P, qkv + at.v, at.pitch, key, KEYS, t);
    };
    start(0, 0);
    for (int key = 0, now = 0; key < seen; key += KEYS, now ^= 1) {
        await_copies();
        __syncthreads();
        if (key + KEYS < seen) start(key + KEYS, now ^ 1);
        float s[M][KEYS / 8][4], ds[M][KEYS / 8][4];
        products<M, KEYS>(s, q, tiles + 2 * now * KEYS * P);
        products<M, KEYS>(ds, d, tiles + (2 * now + 1) * KEYS * P);
        if (key + KEYS > first) hide_later_keys<true, M, KEYS>(s, first, key);
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int n = 0; n < KEYS / 8; ++n)
                for (int i = 0; i < 4; ++i) {
                    const float p = power(fmaf(s[m][n][i], scale, shift[m][i / 2]));
                    ds[m][n][i] = p * (ds[m][n][i] - sum[m][i / 2]);
                }
        add_products<M, KEYS>(dq, ds, tiles + 2 * now * KEYS * P);
    }
    store(dqkv + at.q, at.pitch, dq, by, first, t);
}
"""
)


def flash_attention_backward(qkv: Any, y: Any, lse: Any, dy: Any, groups: int) -> Any:
    """dqkv; see `simdist.nn.functional`."""
    n, heads, t = lse.shape
    e, source = y.shape[-1] // heads, on_tiles(_SOURCE, y.shape[-1] // heads)
    dy = dy if dy.flags.c_contiguous and width_of(dy) == 8 else dy.copy()  # 16 bytes are copied at a time
    sums, dqkv = dots(y, dy, heads), device.empty(qkv.shape, qkv.dtype)
    for name, grid in (
        ("slopes_of_keys", (n * groups, -(-t // _KEYS))),
        ("slopes_of_queries", (n * heads, -(-t // queries_of(e)))),
    ):
        given = qkv, dy, lse, sums, dqkv, *numbers(t, heads, groups, e)
        compiled(source, name, qkv.dtype)(grid, THREADS, *given)
    pairs = num_pairs(n, heads, t, _KEYS) * (8 * e + 5) + num_pairs(n, heads, t, queries_of(e)) * (6 * e + 5)
    charge(pairs, 2 * (qkv.nbytes + y.nbytes) + 3 * lse.nbytes)
    return dqkv
