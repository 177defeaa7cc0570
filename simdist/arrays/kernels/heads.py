"""Heads: queries, keys and values of each head as contiguous arrays, and back; see `simdist.arrays.qkv`.

    qkv, a token's columns       q0 q1 k0 v0 | q2 q3 k1 v1        a block of threads; a thread has 16 bytes at a time
                                 |  |  |  |
    q, k, v, a head's rows       q0 |  k0 v0                      k and v for each query of a group
                                    q1 k0 v0 ...

An array without keys and values, y or dy, has as many groups as heads, and columns q0 | q1 | q2 | q3.
"""

import math
from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.arrays.kernels.source import compiled, contiguous, threads_for, width_of
from simdist.arrays.qkv import widths
from simdist.arrays.working import widened, working_dtype

__all__ = ["dots", "joined", "joined_qkv", "split", "split_qkv"]

_MOST_THREADS = 1024  # of a block, as the kernels declare: so many find registers on any card

_SOURCE = r"""
// The columns of a group: `each` queries of e features, a key and a value.
struct Columns {
    int groups, each, e, key, value, t;

    __device__ int count() const { return groups * (each * e + key + value); }
    // Where the items of a head of this block's token begin, in an array (n, heads, t, width).
    __device__ long long row(int head, int width) const {
        return ((long long)(blockIdx.x / t * groups * each + head) * t + blockIdx.x % t) * width;
    }
    // Call use(part, width, item, first, last) for a column: its part, q, k or v, and the heads that have it there.
    template <class X, class Use> __device__ void find(int column, X* q, X* k, X* v, Use use) const {
        const int width = each * e + key + value, head = column / width * each, i = column % width, j = i - each * e;
        if (j < 0) use(q, e, i % e, head + i / e, head + i / e + 1);
        else if (j < key) use(k, key, j, head, head + each);
        else use(v, value, j - key, head, head + each);
    }
};

extern "C" __global__ void __launch_bounds__(1024) split(
    const T* x, T* q, T* k, T* v, int groups, int each, int e, int key, int value, int t) {
    const Columns columns = {groups, each, e, key, value, t};
    const T* token = x + (long long)blockIdx.x * columns.count();
    for (int i = threadIdx.x * N; i < columns.count(); i += blockDim.x * N) {
        const Pack<T> items = *reinterpret_cast<const Pack<T>*>(token + i);
        columns.find(i, q, k, v, [&](T* to, int width, int item, int first, int last) {
            for (int h = first; h < last; ++h) *reinterpret_cast<Pack<T>*>(to + columns.row(h, width) + item) = items;
        });
    }
}

// The inverse: k and v are summed over the heads of a group, and the sum is rounded.
extern "C" __global__ void __launch_bounds__(1024) join(
    T* x, const G* q, const G* k, const G* v, int groups, int each, int e, int key, int value, int t) {
    const Columns columns = {groups, each, e, key, value, t};
    T* token = x + (long long)blockIdx.x * columns.count();
    for (int i = threadIdx.x * N; i < columns.count(); i += blockDim.x * N) {
        Pack<T> items;
        columns.find(i, q, k, v, [&](const G* from, int width, int item, int first, int last) {
            A sum[N];
            for (int h = first; h < last; ++h) {
                const Pack<G> more = *reinterpret_cast<const Pack<G>*>(from + columns.row(h, width) + item);
                for (int n = 0; n < N; ++n) sum[n] = h == first ? A(widen(more.x[n])) : A(sum[n] + widen(more.x[n]));
            }
            for (int n = 0; n < N; ++n) set(items.x[n], sum[n]);
        });
        *reinterpret_cast<Pack<T>*>(token + i) = items;
    }
}

// y · dy of each head of a token: eight threads each
extern "C" __global__ void __launch_bounds__(1024) dot(const T* y, const T* dy, A* sums, int heads, int d, int t) {
    for (int first = 0; first < 8 * heads; first += blockDim.x) {
        const int head = (first + threadIdx.x) / 8;
        const long long row = ((long long)blockIdx.x * heads + head) * d;
        A sum = 0;
        if (head < heads)
            for (int i = threadIdx.x % 8 * N; i < d; i += 8 * N) {
                const Pack<T> one = *reinterpret_cast<const Pack<T>*>(y + row + i);
                const Pack<T> other = *reinterpret_cast<const Pack<T>*>(dy + row + i);
                for (int n = 0; n < N; ++n) sum += widen(one.x[n]) * widen(other.x[n]);
            }
        for (int far = 4; far; far /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
        if (head < heads && threadIdx.x % 8 == 0)
            sums[((long long)(blockIdx.x / t) * heads + head) * t + blockIdx.x % t] = sum;
    }
}
"""


def split(x: Any, heads: int) -> Any:
    """(n, t, h * d) as (n, h, t, d), contiguous."""
    n, t, width = x.shape
    y = device.empty((n, heads, t, width // heads), x.dtype)
    _run("split", x, (y, y, y), heads, alone=True)
    return y


def joined(y: Any) -> Any:
    """The inverse."""
    n, h, t, d = y.shape
    x = device.empty((n, t, h * d), y.dtype)
    _run("join", x, (y, y, y), h, alone=True)
    return x


def split_qkv(x: Any, heads: int, groups: int, value_width: int | None = None) -> tuple[Any, Any, Any]:
    """Queries, keys and values of each head, contiguous: (n, h, t, e), and values (n, h, t, w); w is e if not given."""
    n, t, columns = x.shape
    e, w = widths(columns, heads, groups, value_width)
    q, k, v = (device.empty((n, heads, t, width), x.dtype) for width in (e, e, w))
    _run("split", x, (q, k, v), groups)
    return q, k, v


def joined_qkv(dq: Any, dk: Any, dv: Any, like: Any, groups: int) -> Any:
    """The derivatives of each head in the order of qkv; those of keys and values are summed over a group."""
    x = device.empty(like.shape, like.dtype)
    _run("join", x, (dq, dk, dv) if dq.dtype == dk.dtype == dv.dtype else tuple(map(widened, (dq, dk, dv))), groups)
    return x


def dots(y: Any, dy: Any, heads: int) -> Any:
    """y · dy of each head, both (n, t, h * d): (n, h, t), in the working dtype."""
    n, t, columns = y.shape
    y, dy, d = contiguous(y), contiguous(dy), columns // heads
    sums = device.empty((n, heads, t), working_dtype(y.dtype))
    kernel = compiled(_SOURCE, "dot", y.dtype, width_of(y, dy, row=d), G=y.dtype)
    kernel(n * t, threads_for(8 * heads, most=_MOST_THREADS), y, dy, sums, np.int32(heads), np.int32(d), np.int32(t))
    return sums


def _run(name: str, x: Any, parts: tuple[Any, ...], groups: int, alone: bool = False) -> None:
    """Run a kernel between x, (n, t, columns), and its parts, (n, h, t, …), `alone` if without keys and values."""
    n, t, columns = x.shape
    x, parts = contiguous(x), tuple(map(contiguous, parts))
    e, key, value = (part.shape[-1] for part in parts)
    sizes = (e, 0, 0) if alone else (e, key, value)
    width = width_of(x, *parts, row=math.gcd(*sizes))
    kernel = compiled(_SOURCE, name, x.dtype, width, G=parts[0].dtype)
    numbers = (np.int32(i) for i in (groups, parts[0].shape[1] // groups, *sizes, t))
    kernel(n * t, threads_for(columns, width, _MOST_THREADS), x, *parts, *numbers)
