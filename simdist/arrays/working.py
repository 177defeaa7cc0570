"""Working: the dtype of arithmetic on numbers that are stored in another dtype, and conversions between the two.

16-bit numbers are for storing and sending. Results are computed in float32 and rounded once, as a matrix
unit does it: factors of 16 bits, sums of 32.

    kept       16 bits    x                                    y
                          | widened                            ^ settle: rounded
    working    32 bits    x  ------- arithmetic ------->  room(y)

Arrays of every other dtype are worked on as they are, and nothing is copied.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["overflow", "room", "rounded", "settle", "short", "widened", "working_dtype"]

_WORKING = dict.fromkeys((np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)), np.dtype(np.float32))
short = frozenset(_WORKING)
"""The dtypes of 16 bits."""


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for float16 and bfloat16; any other dtype itself.

    For a single operation, pass it as `np.add(x, y, out=y, dtype=working_dtype(y.dtype), casting="same_kind")`.
    """
    return _WORKING.get(dtype, dtype)


def overflow(dtype: np.dtype[Any]) -> AbstractContextManager[object]:
    """A context in which 16-bit numbers may become Inf and NaN without a warning.

    That is how a loss scale is found to be too large. In other dtypes overflow is a mistake, and NumPy warns.
    """
    return np.errstate(over="ignore", invalid="ignore") if dtype in _WORKING else nullcontext()


def widened(x: Any) -> Any:
    """x in its working dtype: itself, or a copy."""
    return rounded(x, working_dtype(x.dtype))


def rounded(x: Any, dtype: Any) -> Any:
    """x in this dtype: itself, or a copy."""
    return x if x.dtype == dtype else x.astype(dtype)


def room(y: Any) -> Any:
    """An array in which to compute y: y itself, or an empty one of its shape and working dtype."""
    dtype = working_dtype(y.dtype)
    return y if y.dtype == dtype else np.empty_like(y, dtype=dtype)


def settle(y: Any, worked: Any) -> None:
    """Round into y what was computed in `room(y)`, if that is another array."""
    if worked.dtype != y.dtype:
        y[...] = worked
