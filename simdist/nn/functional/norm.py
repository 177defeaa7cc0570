"""Norm: layer normalization, and RMSNorm, which only divides by the root mean square."""

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.blocks import blocks
from simdist.arrays.fused import fused
from simdist.arrays.working import room, settle, widened, working_dtype
from simdist.nn.functional.matrix import as_rows, column_sums

__all__ = [
    "layer_norm",
    "layer_norm_backward_input",
    "layer_norm_backward_weight",
    "rms_norm",
    "rms_norm_backward_input",
    "rms_norm_backward_weight",
]

_EPSILON = 1e-5  # avoids division by zero for a row of equal numbers


@fused("norm")
def layer_norm(x: Array, gain: Array, bias: Array) -> tuple[Array, Array, Array]:
    """Returns y = z · gain + bias with z = (x - mean) r and r = 1 / √(variance + 1e-5), each row by itself.

    Args:
        x: shape (…, width).
        gain, bias: shape (width,).

    Returns:
        y and z, of x's shape; r, of shape (rows, 1).

    Source: Ba, Kiros, Hinton 2016, arXiv 1607.06450, section 3.
    """
    charge(7 * x.size, 3 * x.nbytes)
    return _forward(x, gain, bias)


@fused("norm")
def layer_norm_backward_input(z: Array, r: Array, gain: Array, dy: Array) -> Array:
    """Returns dx = r (g - mean(g) - z mean(g z)) with g = dy · gain, each row by itself; z, r from `layer_norm`."""
    charge(8 * z.size, 3 * z.nbytes)
    return _backward_input(z, r, gain, dy, _average(z))


@fused("norm")
def layer_norm_backward_weight(z: Array, dy: Array, dgain: Array, dbias: Array) -> None:
    """Add the column sums of dy · z to dgain and those of dy to dbias."""
    z_rows, dy_rows = as_rows(z), as_rows(dy)
    gains, biases = widened(dgain), widened(dbias)
    for part in _blocks(z_rows):
        dys = widened(dy_rows[part])
        gains += column_sums(dys * z_rows[part])
        biases += column_sums(dys)
    settle(dgain, gains)
    settle(dbias, biases)
    charge(3 * z.size, 2 * z.nbytes)


@fused("norm")
def rms_norm(x: Array, gain: Array) -> tuple[Array, Array, Array]:
    """Returns y = z · gain with z = x r and r = 1 / √(mean(x²) + 1e-5), each row by itself.

    Args:
        x: shape (…, width).
        gain: shape (width,).

    Returns:
        y and z, of x's shape; r, of shape (rows, 1).

    Source: Zhang and Sennrich 2019, arXiv 1910.07467, equation 4; the 1e-5 is added as in common implementations.
    """
    charge(4 * x.size, 3 * x.nbytes)
    return _forward(x, gain)


@fused("norm")
def rms_norm_backward_input(z: Array, r: Array, gain: Array, dy: Array) -> Array:
    """Returns dx = r (g - z mean(g z)) with g = dy · gain, each row by itself; z, r from `rms_norm`."""
    charge(6 * z.size, 3 * z.nbytes)
    return _backward_input(z, r, gain, dy)


@fused("norm")
def rms_norm_backward_weight(z: Array, dy: Array, dgain: Array) -> None:
    """Add the column sums of dy · z to dgain."""
    z_rows, dy_rows, gains = as_rows(z), as_rows(dy), widened(dgain)
    for part in _blocks(z_rows):
        gains += column_sums(widened(dy_rows[part]) * z_rows[part])
    settle(dgain, gains)
    charge(2 * z.size, 2 * z.nbytes)


def _forward(x: Array, gain: Array, bias: Array | None = None) -> tuple[Array, Array, Array]:
    """Either norm: without a bias the means of rows are not subtracted."""
    x_rows, gain = as_rows(x), widened(gain)
    y, z = np.empty_like(x_rows), np.empty_like(x_rows)
    r = np.empty_like(x, shape=(len(x_rows), 1), dtype=working_dtype(x.dtype))
    average, bias = (None, None) if bias is None else (_average(x), widened(bias))
    for part in _blocks(x_rows):
        xs, zs, ys, rs = widened(x_rows[part]), room(z[part]), room(y[part]), r[part]
        if average is not None:
            xs = np.subtract(xs, np.vecdot(xs, average)[:, None], out=zs)
        _fill_factors(rs, xs)
        np.multiply(xs, rs, out=zs)
        np.multiply(zs, gain, out=ys)
        if bias is not None:
            ys += bias
        settle(z[part], zs)
        settle(y[part], ys)
    return y.reshape(x.shape), z.reshape(x.shape), r


def _backward_input(z: Array, r: Array, gain: Array, dy: Array, average: Array | None = None) -> Array:
    """dx of either norm: without `average`, see `_average`, the means of g are not subtracted."""
    z_rows, dy_rows, dx = as_rows(z), as_rows(dy), np.empty_like(as_rows(z))
    gain = widened(gain)
    for part in _blocks(dx):
        zs, g = widened(z_rows[part]), room(dx[part])
        np.multiply(dy_rows[part], gain, out=g)
        along = np.vecdot(g, zs)
        along *= 1 / z.shape[-1]
        if average is not None:
            g -= np.vecdot(g, average)[:, None]
        g -= zs * along[:, None]
        g *= r[part]
        settle(dx[part], g)
    return dx.reshape(z.shape)


def _blocks(rows: Array) -> list[slice]:
    return blocks(len(rows), rows.shape[-1] * working_dtype(rows.dtype).itemsize, like=rows)


def _fill_factors(r: Array, rows: Array) -> None:
    """r = 1 / √(mean(row²) + 1e-5) of each row."""
    r[:, 0] = np.vecdot(rows, rows)
    r *= 1 / rows.shape[-1]
    r += _EPSILON
    np.sqrt(r, out=r)
    np.divide(1, r, out=r)


def _average(x: Array) -> Array:
    """A vector whose product with a row is the row's mean; NumPy's sum of short rows is four times slower."""
    average = np.empty_like(x, shape=(x.shape[-1],), dtype=working_dtype(x.dtype))
    average[...] = 1 / x.shape[-1]
    return average
