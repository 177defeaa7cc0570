"""Norm: layer normalization and RMSNorm, a block of threads per row; see `simdist.nn.functional.norm`."""

from typing import Any

import numpy as np

from simdist.arrays.kernels.columns import add_column_products
from simdist.arrays.kernels.source import THREADS, compiled
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
    const long long row = blockIdx.x * width;
    A sum = 0, squares = 0;
    for (long long i = threadIdx.x; i < width; i += blockDim.x) sum += widen(x[row + i]);
    const A mean = block_sum(sum) / width;
    for (long long i = threadIdx.x; i < width; i += blockDim.x) {
        const A far = widen(x[row + i]) - mean;
        squares += far * far;
    }
    const A scale = 1 / sqrt(block_sum(squares) / width + epsilon);
    for (long long i = threadIdx.x; i < width; i += blockDim.x) {
        const A unit = (widen(x[row + i]) - mean) * scale;
        set(z[row + i], unit);
        set(y[row + i], unit * widen(gain[i]) + widen(bias[i]));
    }
    if (threadIdx.x == 0) r[blockIdx.x] = scale;
}

extern "C" __global__ void layer_norm_backward_input(
    const T* z, const A* r, const T* gain, const T* dy, T* dx, long long width) {
    const long long row = blockIdx.x * width;
    A sum = 0, along = 0;
    for (long long i = threadIdx.x; i < width; i += blockDim.x) {
        const A g = widen(dy[row + i]) * widen(gain[i]);
        sum += g;
        along += g * widen(z[row + i]);
    }
    sum = block_sum(sum) / width;
    along = block_sum(along) / width;
    for (long long i = threadIdx.x; i < width; i += blockDim.x) {
        const A g = widen(dy[row + i]) * widen(gain[i]);
        set(dx[row + i], (g - sum - widen(z[row + i]) * along) * r[blockIdx.x]);
    }
}

extern "C" __global__ void rms_norm(const T* x, const T* gain, T* y, T* z, A* r, long long width, A epsilon) {
    const long long row = blockIdx.x * width;
    A squares = 0;
    for (long long i = threadIdx.x; i < width; i += blockDim.x) squares += widen(x[row + i]) * widen(x[row + i]);
    const A scale = 1 / sqrt(block_sum(squares) / width + epsilon);
    for (long long i = threadIdx.x; i < width; i += blockDim.x) {
        const A unit = widen(x[row + i]) * scale;
        set(z[row + i], unit);
        set(y[row + i], unit * widen(gain[i]));
    }
    if (threadIdx.x == 0) r[blockIdx.x] = scale;
}

extern "C" __global__ void rms_norm_backward_input(
    const T* z, const A* r, const T* gain, const T* dy, T* dx, long long width) {
    const long long row = blockIdx.x * width;
    A along = 0;
    for (long long i = threadIdx.x; i < width; i += blockDim.x)
        along += widen(dy[row + i]) * widen(gain[i]) * widen(z[row + i]);
    along = block_sum(along) / width;
    for (long long i = threadIdx.x; i < width; i += blockDim.x) {
        const A g = widen(dy[row + i]) * widen(gain[i]);
        set(dx[row + i], (g - widen(z[row + i]) * along) * r[blockIdx.x]);
    }
}
"""


def layer_norm(x: Any, gain: Any, bias: Any) -> tuple[Any, Any, Any]:
    """See `simdist.nn.functional`: a row is read three times, twice from a cache."""
    width, dtype = x.shape[-1], working_dtype(x.dtype)
    x = x if x.flags.c_contiguous else x.copy()
    rows = x.size // width
    y, z, r = np.empty_like(x), np.empty_like(x), np.empty_like(x, shape=(rows, 1), dtype=dtype)
    kernel = compiled(_SOURCE, "layer_norm", x.dtype)
    kernel(rows, THREADS, x, gain, bias, y, z, r, np.int64(width), dtype.type(1e-5))
    charge(7 * x.size, 3 * x.nbytes)
    return y, z, r


def layer_norm_backward_input(z: Any, r: Any, gain: Any, dy: Any) -> Any:
    """See `simdist.nn.functional`."""
    width, dx = z.shape[-1], np.empty_like(z)
    dy = dy if dy.flags.c_contiguous else dy.copy()
    kernel = compiled(_SOURCE, "layer_norm_backward_input", z.dtype)
    kernel(z.size // width, THREADS, z, r, gain, dy, dx, np.int64(width))
    charge(8 * z.size, 3 * z.nbytes)
    return dx


def layer_norm_backward_weight(z: Any, dy: Any, dgain: Any, dbias: Any) -> None:
    """See `simdist.nn.functional`."""
    add_column_products(dy, z, dgain, dbias)
    charge(3 * z.size, 2 * z.nbytes)


def rms_norm(x: Any, gain: Any) -> tuple[Any, Any, Any]:
    """See `simdist.nn.functional`."""
    width, dtype = x.shape[-1], working_dtype(x.dtype)
    x = x if x.flags.c_contiguous else x.copy()
    rows = x.size // width
    y, z, r = np.empty_like(x), np.empty_like(x), np.empty_like(x, shape=(rows, 1), dtype=dtype)
    kernel = compiled(_SOURCE, "rms_norm", x.dtype)
    kernel(rows, THREADS, x, gain, y, z, r, np.int64(width), dtype.type(1e-5))
    charge(4 * x.size, 3 * x.nbytes)
    return y, z, r


def rms_norm_backward_input(z: Any, r: Any, gain: Any, dy: Any) -> Any:
    """See `simdist.nn.functional`."""
    width, dx = z.shape[-1], np.empty_like(z)
    dy = dy if dy.flags.c_contiguous else dy.copy()
    kernel = compiled(_SOURCE, "rms_norm_backward_input", z.dtype)
    kernel(z.size // width, THREADS, z, r, gain, dy, dx, np.int64(width))
    charge(6 * z.size, 3 * z.nbytes)
    return dx


def rms_norm_backward_weight(z: Any, dy: Any, dgain: Any) -> None:
    """See `simdist.nn.functional`."""
    add_column_products(dy, z, dgain)
    charge(2 * z.size, 2 * z.nbytes)
