"""Activation: the Gaussian error linear unit, and the gated one."""

import math

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.blocks import blocks
from simdist.arrays.fused import fused
from simdist.arrays.working import room, settle, widened, working_dtype

__all__ = ["gelu", "gelu_backward", "swiglu", "swiglu_backward"]

_C = math.sqrt(2 / math.pi)
_A = _C * 0.044715


@fused("activation")
def gelu(x: Array) -> tuple[Array, Array]:
    """The Gaussian error linear unit, y = x s with s = (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, and its slope.

    The slope, s + y (1 - s) 2 √(2/π) (1 + 3 · 0.044715 x²), is computed while everything is in the cache, and is
    all that backward needs.

    Returns:
        y and dy/dx, each of x's shape.

    Source: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.
    """
    y, slope = np.empty_like(x, shape=(x.size,)), np.empty_like(x, shape=(x.size,))
    flat, dtype = x.reshape(-1), working_dtype(x.dtype)
    parts = blocks(x.size, dtype.itemsize, like=x)
    s, rest = (np.empty_like(x, shape=(parts[0].stop if parts else 0,), dtype=dtype) for _ in range(2))
    for part in parts:
        n, ys, slopes = part.stop - part.start, room(y[part]), room(slope[part])
        _gelu(widened(flat[part]), ys, slopes, s[:n], rest[:n])
        settle(y[part], ys)
        settle(slope[part], slopes)
    charge(15 * x.size, 3 * x.nbytes)
    return y.reshape(x.shape), slope.reshape(x.shape)


def _gelu(x: Array, y: Array, slope: Array, s: Array, rest: Array) -> None:
    """One block of `gelu`; s and rest are working space."""
    np.multiply(x, x, out=slope)
    slope *= _A
    slope += _C  # C + A x²
    np.multiply(slope, x, out=s)
    np.tanh(s, out=s)
    s *= 0.5
    s += 0.5
    np.multiply(x, s, out=y)
    slope *= 6
    slope -= 4 * _C  # 2 C + 6 A x²
    slope *= y
    np.subtract(1, s, out=rest)
    slope *= rest
    slope += s


@fused("activation")
def gelu_backward(slope: Array, dy: Array) -> Array:
    """Returns dx = dy · slope."""
    dx = np.empty_like(dy)
    np.multiply(dy, slope, out=dx, dtype=working_dtype(dx.dtype), casting="same_kind")
    charge(dx.size, 3 * dx.nbytes)
    return dx


@fused("activation")
def swiglu(x: Array) -> tuple[Array, Array]:
    """The gated linear unit y = g s u with s = 1 / (1 + exp(-g)), and its slopes by g and by u.

        slope by g    (s + g s (1 - s)) u        slope by u    g s

    As in `gelu`, slopes are computed while everything is in the cache, and are all that backward needs.

    Args:
        x: shape (…, 2 f): in each row f numbers g, then f numbers u.

    Returns:
        y, shape (…, f); slopes, of x's shape.

    Source: Shazeer 2020, arXiv 2002.05202, equations 5 and 6.
    """
    f = x.shape[-1] // 2
    pairs = x.reshape(-1, 2, f)
    y, slopes = np.empty_like(x, shape=(len(pairs), f)), np.empty_like(pairs)
    for part in blocks(len(pairs), f * working_dtype(x.dtype).itemsize, like=x):
        ys, each = room(y[part]), room(slopes[part])
        _swiglu(widened(pairs[part]), ys, each)
        settle(y[part], ys)
        settle(slopes[part], each)
    charge(10 * y.size, x.nbytes + y.nbytes + slopes.nbytes)
    return y.reshape(*x.shape[:-1], f), slopes.reshape(x.shape)


def _swiglu(x: Array, y: Array, slopes: Array) -> None:
    """One block of `swiglu`."""
    g, u = x[:, 0], x[:, 1]
    by_g, by_u = slopes[:, 0], slopes[:, 1]
    np.multiply(g, 0.5, out=by_g)
    np.tanh(by_g, out=by_g)  # tanh(g / 2): no exponential overflows
    by_g *= 0.5
    by_g += 0.5  # s
    np.multiply(g, by_g, out=by_u)
    np.subtract(1, by_g, out=y)
    y *= by_u
    by_g += y
    by_g *= u
    np.multiply(by_u, u, out=y)


@fused("activation")
def swiglu_backward(slopes: Array, dy: Array) -> Array:
    """Returns dx = dy · slopes, of the slopes' shape, by g and by u."""
    dx, f = np.empty_like(slopes, order="C"), dy.shape[-1]  # so that its pairs are a view
    pairs, each = dx.reshape(-1, 2, f), slopes.reshape(-1, 2, f)
    dtype = working_dtype(dx.dtype)
    np.multiply(dy.reshape(-1, 1, f), each, out=pairs, dtype=dtype, casting="same_kind")
    charge(dx.size, 2 * dx.nbytes + dy.nbytes)
    return dx
