"""Activation: the Gaussian error linear unit, and the gated one; see `simdist.nn.functional.activation`."""

import math
from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.arrays.kernels.source import THREADS, blocks_for, compiled, contiguous, pointwise, run_pointwise, width_of
from simdist.arrays.meter import charge

__all__ = ["gelu", "gelu_backward", "swiglu", "swiglu_backward"]

_C = math.sqrt(2 / math.pi)

_GELU = pointwise(
    "gelu",
    ["T x"],
    ["T y", "T slope"],
    f"""
    const A c = {_C!r}, a = {_C * 0.044715!r};
    const A s = tanh((c + a * x * x) * x) * A(0.5) + A(0.5);
    y = x * s;
    slope = (2 * c + 6 * a * x * x) * y * (1 - s) + s;
    """,
)
_BACKWARD = pointwise("gelu_backward", ["T slope", "T dy"], ["T dx"], "dx = dy * slope;")

# A row has f gates g, then the f numbers u that they multiply. A thread has a pack of the n results at a time.
_SWIGLU = r"""
extern "C" __global__ void swiglu(const T* x, T* y, T* slopes, long long n, long long f) {
    const long long step = (long long)gridDim.x * blockDim.x, packs = f / N;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n / N; i += step) {
        const long long at = i + i / packs * packs;
        const Pack<T> gates = load(x, at), factors = load(x, at + packs);
        Pack<T> by_gate, by_factor, out;
        for (int k = 0; k < N; ++k) {
            const A g = widen(gates.x[k]), u = widen(factors.x[k]), s = tanh(g * A(0.5)) * A(0.5) + A(0.5);
            set(by_gate.x[k], (s + g * s * (1 - s)) * u);
            set(by_factor.x[k], g * s);
            set(out.x[k], g * s * u);
        }
        store(slopes, at, by_gate);
        store(slopes, at + packs, by_factor);
        store(y, i, out);
    }
}

extern "C" __global__ void swiglu_backward(const T* slopes, const T* dy, T* dx, long long n, long long f) {
    const long long step = (long long)gridDim.x * blockDim.x, packs = f / N;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n / N; i += step) {
        const Pack<T> d = load(dy, i);
        for (int side = 0; side < 2; ++side) {
            const long long at = i + (i / packs + side) * packs;
            Pack<T> p = load(slopes, at);
            for (int k = 0; k < N; ++k) set(p.x[k], widen(d.x[k]) * widen(p.x[k]));
            store(dx, at, p);
        }
    }
}
"""


def gelu(x: Any) -> tuple[Any, Any]:
    """See `simdist.nn.functional`."""
    x = contiguous(x)
    y, slope = device.empty(x.shape, x.dtype), device.empty(x.shape, x.dtype)
    run_pointwise(_GELU, "gelu", (x, y, slope), dtype=x.dtype)
    charge(15 * x.size, 3 * x.nbytes)
    return y, slope


def gelu_backward(slope: Any, dy: Any) -> Any:
    """See `simdist.nn.functional`."""
    dy = contiguous(dy)
    dx = device.empty(dy.shape, dy.dtype)
    run_pointwise(_BACKWARD, "gelu_backward", (slope, dy, dx), dtype=dy.dtype)
    charge(dx.size, 3 * dx.nbytes)
    return dx


def swiglu(x: Any) -> tuple[Any, Any]:
    """See `simdist.nn.functional`."""
    x, f = contiguous(x), x.shape[-1] // 2
    y, slopes = device.empty((*x.shape[:-1], f), x.dtype), device.empty(x.shape, x.dtype)
    width = width_of(x, y, slopes, row=f)
    kernel = compiled(_SWIGLU, "swiglu", x.dtype, width)
    kernel(blocks_for(y.size, width), THREADS, x, y, slopes, np.int64(y.size), np.int64(f))
    charge(10 * y.size, x.nbytes + y.nbytes + slopes.nbytes)
    return y, slopes


def swiglu_backward(slopes: Any, dy: Any) -> Any:
    """See `simdist.nn.functional`."""
    dy = contiguous(dy)
    dx = device.empty(slopes.shape, slopes.dtype)
    width = width_of(slopes, dy, dx, row=dy.shape[-1])
    kernel = compiled(_SWIGLU, "swiglu_backward", dy.dtype, width)
    kernel(blocks_for(dy.size, width), THREADS, slopes, dy, dx, np.int64(dy.size), np.int64(dy.shape[-1]))
    charge(dx.size, 2 * dx.nbytes + dy.nbytes)
    return dx
