"""Activation: the Gaussian error linear unit in one pass; see `simdist.nn.functional.activation`."""

import math
from typing import Any

import numpy as np

from simdist.arrays.kernels.source import THREADS, blocks_for, compiled, pointwise, width_of
from simdist.arrays.meter import charge

__all__ = ["gelu", "gelu_backward"]

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


def gelu(x: Any) -> tuple[Any, Any]:
    """See `simdist.nn.functional`."""
    x = x if x.flags.c_contiguous else x.copy()
    y, slope = np.empty_like(x), np.empty_like(x)
    width = width_of(x, y, slope)
    compiled(_GELU, "gelu", x.dtype, width)(blocks_for(x.size, width), THREADS, x, y, slope, np.int64(x.size))
    charge(15 * x.size, 3 * x.nbytes)
    return y, slope


def gelu_backward(slope: Any, dy: Any) -> Any:
    """See `simdist.nn.functional`."""
    dy = dy if dy.flags.c_contiguous else dy.copy()
    dx = np.empty_like(dy)
    width = width_of(slope, dy, dx)
    kernel = compiled(_BACKWARD, "gelu_backward", dy.dtype, width)
    kernel(blocks_for(dx.size, width), THREADS, slope, dy, dx, np.int64(dx.size))
    charge(dx.size, 3 * dx.nbytes)
    return dx
