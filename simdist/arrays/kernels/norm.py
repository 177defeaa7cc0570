"""Norm: layer normalization and RMSNorm, a block of threads per row; see `simdist.nn.functional.norm`."""

from typing import Any

import numpy as np

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

_COLUMNS, _LANES = 32, 8  # of a block that sums columns: THREADS together
_ROWS = 64  # the least that such a block sums

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

// A block sums 32 columns over some rows, eight rows at a time.
extern "C" __global__ void layer_norm_columns(
    const T* z, const T* dy, A* gains, A* biases, long long rows, long long width, long long rows_each) {
    __shared__ A parts[2][8][32];
    const int column = threadIdx.x % 32, lane = threadIdx.x / 32;
    const long long i = blockIdx.x * 32 + column, first = blockIdx.y * rows_each;
    const long long end = first + rows_each < rows ? first + rows_each : rows;
    A gain = 0, bias = 0;
    if (i < width)
        for (long long row = first + lane; row < end; row += 8) {
            const A d = widen(dy[row * width + i]);
            gain += d * widen(z[row * width + i]);
            bias += d;
        }
    parts[0][lane][column] = gain;
    parts[1][lane][column] = bias;
    __syncthreads();
    if (lane == 0 && i < width) {
        for (int k = 1; k < 8; ++k) {
            gain += parts[0][k][column];
            bias += parts[1][k][column];
        }
        gains[blockIdx.y * width + i] = gain;
        biases[blockIdx.y * width + i] = bias;
    }
}

extern "C" __global__ void layer_norm_add(
    const A* gains, const A* biases, T* dgain, T* dbias, long long parts, long long width) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width) return;
    A gain = widen(dgain[i]), bias = widen(dbias[i]);
    for (long long k = 0; k < parts; ++k) {
        gain += gains[k * width + i];
        bias += biases[k * width + i];
    }
    set(dgain[i], gain);
    set(dbias[i], bias);
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
    _add_columns(z, dy, dgain, dbias)
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
    """See `simdist.nn.functional`: the kernel makes both sums, and that of the bias is discarded."""
    _add_columns(z, dy, dgain, np.empty_like(dgain))
    charge(2 * z.size, 2 * z.nbytes)


def _add_columns(z: Any, dy: Any, dgain: Any, dbias: Any) -> None:
    """Sum over runs of rows first, always in the same order."""
    width = z.shape[-1]
    rows = z.size // width
    dy = dy if dy.flags.c_contiguous else dy.copy()
    parts = max(1, min(32, rows // _ROWS))
    sums = np.empty_like(z, shape=(2, parts, width), dtype=working_dtype(z.dtype))
    grid, wide = (-(-width // _COLUMNS), parts), np.int64(width)
    each = np.int64(-(-rows // parts))
    compiled(_SOURCE, "layer_norm_columns", z.dtype)(grid, _COLUMNS * _LANES, z, dy, *sums, np.int64(rows), wide, each)
    adding = compiled(_SOURCE, "layer_norm_add", dgain.dtype)
    adding(-(-width // THREADS), THREADS, *sums, dgain, dbias, np.int64(parts), wide)
