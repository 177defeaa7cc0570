"""Norm: layer normalization and RMSNorm, a block of threads per row; see `simdist.nn.functional.norm`."""

from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.arrays.kernels.columns import add_column_products
from simdist.arrays.kernels.source import compiled, contiguous, threads_for, width_of
from simdist.arrays.meter import charge
from simdist.arrays.working import working_dtype

__all__ = [
    "layer_norm",
    "layer_norm_backward_input",
    "layer_norm_backward_weight",
    "rms_norm",
    "rms_norm_backward_input",
    "rms_norm_backward_weight",
]

_SOURCE = r"""
extern "C" __global__ void layer_norm(
    const T* x, const T* gain, const T* bias, T* y, T* z, A* r, long long width, A epsilon) {
    const long long row = blockIdx.x * width, packs = width / N;
    A sum = 0, squares = 0;
    for (long long i = threadIdx.x; i < packs; i += blockDim.x) {
        const Pack<T> p = load(x + row, i);
        for (int k = 0; k < N; ++k) sum += widen(p.x[k]);
    }
    const A mean = block_sum(sum) / width;
    for (long long i = threadIdx.x; i < packs; i += blockDim.x) {
        const Pack<T> p = load(x + row, i);
        for (int k = 0; k < N; ++k) squares += (widen(p.x[k]) - mean) * (widen(p.x[k]) - mean);
    }
    const A scale = 1 / sqrt(block_sum(squares) / width + epsilon);
    for (long long i = threadIdx.x; i < packs; i += blockDim.x) {
        const Pack<T> p = load(x + row, i), g = load_any(gain, i), b = load_any(bias, i);
        Pack<T> unit, out;
        for (int k = 0; k < N; ++k) {
            const A u = (widen(p.x[k]) - mean) * scale;
            set(unit.x[k], u);
            set(out.x[k], u * widen(g.x[k]) + widen(b.x[k]));
        }
        store(z + row, i, unit);
        store(y + row, i, out);
    }
    if (threadIdx.x == 0) r[blockIdx.x] = scale;
}

extern "C" __global__ void rms_norm(const T* x, const T* gain, T* y, T* z, A* r, long long width, A epsilon) {
    const long long row = blockIdx.x * width, packs = width / N;
    A squares = 0;
    for (long long i = threadIdx.x; i < packs; i += blockDim.x) {
        const Pack<T> p = load(x + row, i);
        for (int k = 0; k < N; ++k) squares += widen(p.x[k]) * widen(p.x[k]);
    }
    const A scale = 1 / sqrt(block_sum(squares) / width + epsilon);
    for (long long i = threadIdx.x; i < packs; i += blockDim.x) {
        const Pack<T> p = load(x + row, i), g = load_any(gain, i);
        Pack<T> unit, out;
        for (int k = 0; k < N; ++k) {
            const A u = widen(p.x[k]) * scale;
            set(unit.x[k], u);
            set(out.x[k], u * widen(g.x[k]));
        }
        store(z + row, i, unit);
        store(y + row, i, out);
    }
    if (threadIdx.x == 0) r[blockIdx.x] = scale;
}

// dx = r (g - mean(g) - z mean(g z)) with g = dy gain; without mean(g) if not CENTERED.
template <bool CENTERED> __device__ inline void backward_of(
    const T* z, const A* r, const T* gain, const T* dy, T* dx, long long width) {
    const long long row = blockIdx.x * width, packs = width / N;
    A sum = 0, along = 0;
    for (long long i = threadIdx.x; i < packs; i += blockDim.x) {
        const Pack<T> d = load(dy + row, i), u = load(z + row, i), by = load_any(gain, i);
        for (int k = 0; k < N; ++k) {
            const A g = widen(d.x[k]) * widen(by.x[k]);
            sum += g;
            along += g * widen(u.x[k]);
        }
    }
    const A mean = CENTERED ? block_sum(sum) / width : A(0), slope = block_sum(along) / width, scale = r[blockIdx.x];
    for (long long i = threadIdx.x; i < packs; i += blockDim.x) {
        const Pack<T> d = load(dy + row, i), u = load(z + row, i), by = load_any(gain, i);
        Pack<T> out;
        for (int k = 0; k < N; ++k)
            set(out.x[k], (widen(d.x[k]) * widen(by.x[k]) - mean - widen(u.x[k]) * slope) * scale);
        store(dx + row, i, out);
    }
}

extern "C" __global__ void layer_norm_backward_input(
    const T* z, const A* r, const T* gain, const T* dy, T* dx, long long width) {
    backward_of<true>(z, r, gain, dy, dx, width);
}

extern "C" __global__ void rms_norm_backward_input(
    const T* z, const A* r, const T* gain, const T* dy, T* dx, long long width) {
    backward_of<false>(z, r, gain, dy, dx, width);
}
"""


def layer_norm(x: Any, gain: Any, bias: Any) -> tuple[Any, Any, Any]:
    """See `simdist.nn.functional`: a row is read three times, twice from a cache."""
    charge(7 * x.size, 3 * x.nbytes)
    return _forward("layer_norm", x, gain, bias)


def layer_norm_backward_input(z: Any, r: Any, gain: Any, dy: Any) -> Any:
    """See `simdist.nn.functional`."""
    charge(8 * z.size, 3 * z.nbytes)
    return _backward("layer_norm_backward_input", z, r, gain, dy)


def layer_norm_backward_weight(z: Any, dy: Any, dgain: Any, dbias: Any) -> None:
    """See `simdist.nn.functional`."""
    add_column_products(dy, z, dgain, dbias)
    charge(3 * z.size, 2 * z.nbytes)


def rms_norm(x: Any, gain: Any) -> tuple[Any, Any, Any]:
    """See `simdist.nn.functional`."""
    charge(4 * x.size, 3 * x.nbytes)
    return _forward("rms_norm", x, gain)


def rms_norm_backward_input(z: Any, r: Any, gain: Any, dy: Any) -> Any:
    """See `simdist.nn.functional`."""
    charge(6 * z.size, 3 * z.nbytes)
    return _backward("rms_norm_backward_input", z, r, gain, dy)


def rms_norm_backward_weight(z: Any, dy: Any, dgain: Any) -> None:
    """See `simdist.nn.functional`."""
    add_column_products(dy, z, dgain)
    charge(2 * z.size, 2 * z.nbytes)


def _forward(name: str, x: Any, *weights: Any) -> tuple[Any, Any, Any]:
    """y, z and r. Sums of a row do not depend on where the weights lie: only rows must be aligned to be read fast."""
    width, dtype = x.shape[-1], working_dtype(x.dtype)
    x = contiguous(x)
    rows = x.size // width
    y, z, r = device.empty(x.shape, x.dtype), device.empty(x.shape, x.dtype), device.empty((rows, 1), dtype)
    n = width_of(x, y, z, row=width)
    kernel = compiled(_SOURCE, name, x.dtype, n)
    kernel(rows, threads_for(width, n), x, *weights, y, z, r, np.int64(width), dtype.type(1e-5))
    return y, z, r


def _backward(name: str, z: Any, r: Any, gain: Any, dy: Any) -> Any:
    width, dx = z.shape[-1], device.empty(z.shape, z.dtype)
    dy = contiguous(dy)
    n = width_of(z, dy, dx, row=width)
    kernel = compiled(_SOURCE, name, z.dtype, n)
    kernel(z.size // width, threads_for(width, n), z, r, gain, dy, dx, np.int64(width))
    return dx
