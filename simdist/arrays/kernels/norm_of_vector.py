"""Norm of a vector: the largest absolute value, and the exact sum of squares; see `simdist.optim.norm`."""

import math
from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.arrays.kernels.source import THREADS, blocks_for, compiled

__all__ = ["largest", "squares"]

_SOURCE = r"""
__device__ inline unsigned long long magnitude(half16 x) { return x.bits & 0x7fff; }
__device__ inline unsigned long long magnitude(bfloat x) { return x.bits & 0x7fff; }
__device__ inline unsigned long long magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ inline unsigned long long magnitude(double x) { return __double_as_longlong(x) & 0x7fffffffffffffffll; }

// Without their signs floats are ordered like their bits, and NaNs are above all numbers.
extern "C" __global__ void largest(const T* x, unsigned long long* top, long long n) {
    unsigned long long most = 0;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    for (long long i = first; i < n; i += step) {
        const unsigned long long bits = magnitude(x[i]);
        if (bits > most) most = bits;
    }
    most = block_max(most);
    if (threadIdx.x == 0) atomicMax(top, most);
}

// Squares as integers, by which they raise the bits of `ceiling`. Their sum does not depend on the order.
extern "C" __global__ void squares(
    const T* x, unsigned long long* sums, double shrink1, double shrink2, double ceiling, long long n) {
    const unsigned long long base = __double_as_longlong(ceiling);
    unsigned long long low = 0, high = 0;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    for (long long i = first; i < n; i += step) {
        const double y = double(widen(x[i])) * shrink1 * shrink2;
        const unsigned long long units = __double_as_longlong(y * y + ceiling) - base;
        low += units & 0xffffffffull;
        high += units >> 32;
    }
    low = block_sum(low);
    high = block_sum(high);
    if (threadIdx.x == 0) {
        atomicAdd(&sums[0], low);
        atomicAdd(&sums[1], high);
    }
}
"""

_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def largest(x: Any) -> float:
    """See `simdist.optim.norm`: the array is read once."""
    if x.size == 0:
        return 0.0
    top = np.zeros_like(x, shape=(1,), dtype=np.uint64)
    compiled(_SOURCE, "largest", x.dtype)(blocks_for(x.size), THREADS, x, top, np.int64(x.size))
    return float(device.to_host(top).astype(_BITS[x.itemsize]).view(x.dtype)[0])


def squares(x: Any, exponent: int, shrink: bool) -> int:
    """The sum of the squares of x, all below 2**exponent, in units of 2**(2 * exponent - 52)."""
    sums = np.zeros_like(x, shape=(2,), dtype=np.uint64)
    by = (-exponent // 2, -exponent - -exponent // 2) if shrink else (0, 0)
    ceiling = 1.0 if shrink else math.ldexp(1.0, 2 * exponent)
    numbers = (np.float64(math.ldexp(1.0, by[0])), np.float64(math.ldexp(1.0, by[1])), np.float64(ceiling))
    compiled(_SOURCE, "squares", x.dtype)(blocks_for(x.size), THREADS, x, sums, *numbers, np.int64(x.size))
    low, high = device.to_host(sums).tolist()
    return int(high << 32) + int(low)
