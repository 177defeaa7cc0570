"""Cast: numbers as those of another dtype, 16 bytes at a time; see `simdist.arrays.copied`."""

from typing import Any

import numpy as np

from simdist.arrays.kernels.source import pointwise, run_pointwise
from simdist.arrays.working import short

__all__ = ["cast"]

_CAST = pointwise("cast", ["G x"], ["T y"], "y = A(x);")


def cast(y: Any, x: Any) -> None:
    """Set y to x, rounded or widened to its dtype, between 16 bits and float32; other copies are CuPy's."""
    less, more = (x, y) if x.itemsize < y.itemsize else (y, x)
    dtypes = less.dtype in short and more.dtype == np.float32
    if not (dtypes and x.shape == y.shape and x.flags.c_contiguous and y.flags.c_contiguous):
        np.copyto(y, x, casting="same_kind")
        return
    run_pointwise(_CAST, "cast", (x, y), dtype=y.dtype, G=x.dtype)
