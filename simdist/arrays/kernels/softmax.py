r"""Softmax: from scores to probabilities and back, for a tile of queries; see `simdist.arrays.kernels.attention`.

The last key of a tile is that of its last query, and a query sees no later key. A block of threads has 32 adjacent
queries of a head. A thread has N of them, and of their keys every 8 N-th: a few of these are read at once, and those
that none of its queries sees are not read at all. For N = 4:

             8 threads, 4 queries each
    key   0  |####|####|####|####|####|####|####|####|   lane 0      #  seen
          1  |.###|####|####|####|####|####|####|####|   lane 1      .  hidden by the mask: p is 0
          …
         31  |....|....|....|....|....|....|....|...#|   lane 31
         32  |....|....|....|....|....|....|....|....|   lane 0

Each thread has the maximum m and the sum l = Σ exp(s - m) of the keys it has seen. Another score, or the m' and l' of
other keys, change them to

    m'' = max(m, m')        l'' = l exp(m - m'') + l' exp(m' - m'')

so a first pass over the scores is enough for both, and a second writes p. The order of all sums is fixed.

Source: Milakov, Gimelshein 2018, arXiv 1805.02867, algorithm 3 (the sum beside the maximum) and section 3.1 (in parts).
"""

from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.arrays.kernels.source import THREADS, compiled, width_of

__all__ = ["softmax", "softmax_again", "softmax_backward"]

_QUERIES = 32  # of a block of THREADS

_SOURCE = r"""
constexpr int QUERIES = 32, WIDE = QUERIES / N, LANES = 256 / WIDE, FEW = N > 1 ? 2 : 4;
// The least finite number. -inf would not do as the maximum of no keys: -inf - -inf is NaN.
constexpr A LOWEST = A(sizeof(A) == 8 ? -1.7976931348623157e308 : -3.4028234663852886e38);

// What a thread has: N queries, and every LANES-th key from its lane on; FEW of them at a time, from key j on.
struct Share {
    int lane, place;         // of the keys; of the first query among the block's
    int query, keys, step;   // the first query's place in the text; from one key to the next in s
    long long head, column;  // where in s the first query's scores begin

    __device__ Share(int count, int queries) {
        const unsigned parts = (queries + QUERIES - 1) / QUERIES;
        lane = threadIdx.x / WIDE;
        place = threadIdx.x % WIDE * N;
        const int i = blockIdx.x % parts * QUERIES + place;
        head = blockIdx.x / parts;
        column = head * count * queries + i;
        step = queries;
        keys = i < queries ? count : 0;
        query = i < queries ? count - queries + i : -N;  // beyond the last there are no keys, and none is seen
    }
    __device__ bool sees(int key, int n = N - 1) const { return key <= query + n; }
    __device__ long long at(int key) const { return column + (long long)key * step; }

    template <class X> __device__ void load(Pack<X> (&x)[FEW], const X* from, int j) const {
        for (int k = 0; k < FEW; ++k, j += LANES)
            if (sees(j)) x[k] = *reinterpret_cast<const Pack<X>*>(from + at(j));
    }
    // Write item(k, n) for key j + k LANES and query n, after load(j), and 0 where the mask hides the key.
    template <class Load, class Item> __device__ void write(T* out, Load load, Item item) const {
        for (int j = lane; j < keys; j += FEW * LANES) {
            load(j);
            for (int k = 0; k < FEW && j + k * LANES < keys; ++k) {
                const int key = j + k * LANES;
                Pack<T> y{};
                if (sees(key))
                    for (int n = 0; n < N; ++n)
                        if (sees(key, n)) set(y.x[n], A(item(k, n)));
                *reinterpret_cast<Pack<T>*>(out + at(key)) = y;
            }
        }
    }
};

extern "C" __global__ void softmax(const A* s, T* p, A* lse, int keys, int queries, int t) {
    __shared__ A tops[LANES][QUERIES], totals[LANES][QUERIES];
    const Share my(keys, queries);
    const A hidden = __uint_as_float(0xff800000u);  // -inf
    Pack<A> x[FEW];
    A top[N], total[N];
    for (int n = 0; n < N; ++n) top[n] = LOWEST, total[n] = 0;
    for (int j = my.lane; my.sees(j); j += FEW * LANES) {
        my.load(x, s, j);
        for (int n = 0; n < N; ++n) {
            A higher = top[n];
            for (int k = 0; k < FEW; ++k) {
                if (!my.sees(j + k * LANES, n)) x[k].x[n] = hidden;
                higher = larger(higher, x[k].x[n]);
            }
            total[n] *= exp(top[n] - higher);
            for (int k = 0; k < FEW; ++k) total[n] += exp(x[k].x[n] - higher);
            top[n] = higher;
        }
    }
    for (int n = 0; n < N; ++n) tops[my.lane][my.place + n] = top[n], totals[my.lane][my.place + n] = total[n];
    __syncthreads();
    if (threadIdx.x < QUERIES) {
        A most = LOWEST, sum = 0;
        for (int k = 0; k < LANES; ++k) most = larger(most, tops[k][threadIdx.x]);
        for (int k = 0; k < LANES; ++k) sum += totals[k][threadIdx.x] * exp(tops[k][threadIdx.x] - most);
        tops[0][threadIdx.x] = most;
        totals[0][threadIdx.x] = sum;
    }
    __syncthreads();
    for (int n = 0; n < N; ++n) {
        top[n] = tops[0][my.place + n];
        total[n] = totals[0][my.place + n];
        if (my.lane == 0 && my.keys) lse[my.head * t + my.query + n] = top[n] + log(total[n]);
    }
    my.write(
        p, [&](int j) { my.load(x, s, j); }, [&](int k, int n) { return exp(x[k].x[n] - top[n]) / total[n]; });
}

// p = exp(s - lse)
extern "C" __global__ void softmax_again(const A* s, T* p, const A* lse, int keys, int queries, int t) {
    const Share my(keys, queries);
    Pack<A> x[FEW];
    A of[N];
    for (int n = 0; n < N && my.keys; ++n) of[n] = lse[my.head * t + my.query + n];
    my.write(
        p, [&](int j) { my.load(x, s, j); }, [&](int k, int n) { return exp(x[k].x[n] - of[n]); });
}

// ds = p (dp - sum of p dp) scale
extern "C" __global__ void softmax_backward(
    const A* dp, T* ds, const A* sums, const T* p, A scale, int keys, int queries, int t) {
    const Share my(keys, queries);
    Pack<A> d[FEW];
    Pack<T> w[FEW];
    A sum[N];
    for (int n = 0; n < N && my.keys; ++n) sum[n] = sums[my.head * t + my.query + n];
    my.write(
        ds, [&](int j) { my.load(d, dp, j), my.load(w, p, j); },
        [&](int k, int n) { return (d[k].x[n] - sum[n]) * widen(w[k].x[n]) * scale; });
}
"""


def softmax(s: Any, dtype: Any, lse: Any) -> Any:
    """p, of this dtype, of scores (n, h, keys, queries) of its working dtype; in place if that is the same.

    Args:
        lse: (n, h, t), into which log Σ exp s of each query is written.

    Cost: reads the scores that no mask hides twice, and writes p.
    """
    return _run("softmax", s, dtype, lse)


def softmax_again(s: Any, dtype: Any, lse: Any) -> Any:
    """The same p from the lse that `softmax` wrote."""
    return _run("softmax_again", s, dtype, lse)


def softmax_backward(dp: Any, p: Any, sums: Any, scale: float) -> Any:
    """ds = p (dp - Σ p dp) scale, in p's dtype; in place of dp if it has that.

    Args:
        sums: Σ p dp of each query, (n, h, t).
    """
    return _run("softmax_backward", dp, p.dtype, sums, p, dp.dtype.type(scale))


def _run(name: str, s: Any, dtype: Any, of_queries: Any, *more: Any) -> Any:
    """Run a kernel over the columns of s."""
    n, h, keys, queries = s.shape
    out = s if s.dtype == dtype else device.empty(s.shape, dtype)
    kernel = compiled(_SOURCE, name, dtype, width_of(s, out, *more[:1], row=queries))
    sizes = (np.int32(i) for i in (keys, queries, of_queries.shape[-1]))
    kernel(n * h * -(-queries // _QUERIES), THREADS, s, out, of_queries, *more, *sizes)
    return out
