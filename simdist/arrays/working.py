"""Working: the dtype in which arithmetic is done on numbers that are kept in another, and the way there and back.

16-bit numbers are for storing and sending. Results are computed in float32 and rounded once, as a matrix
unit does it: factors of 16 bits, sums of 32.

    kept       16 bits    x                                    y
                          | widened                            ^ settle: rounded
    working    32 bits    x  ------- arithmetic ------->  room(y)

Arrays of every other dtype are their own working form, and nothing is copied.
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
    """float32 for float16 and bfloat16, and every other dtype itself.

    Give it to a single operation as `np.add(x, y, out=y, dtype=working_dtype(y.dtype), casting="same_kind")`.
    """
    return _WORKING.get(dtype, dtype)


def overflow(dtype: np.dtype[Any]) -> AbstractContextManager[object]:
    """Inside it numbers of 16 bits may become Inf and NaN without a warning.

    That is how a scaled loss tells that its scale is too large. In other dtypes it is a mistake, and NumPy warns.
    """
    return np.errstate(over="ignore", invalid="ignore") if dtype in _WORKING else nullcontext()


def widened(x: Any) -> Any:
    """x in its working dtype: itself, or a copy."""
    return rounded(x, working_dtype(x.dtype))


def rounded(x: Any, dtype: Any) -> Any:
    """x in this dtype: itself, or a copy."""
    return x if x.dtype == dtype else x.astype(dtype)


def room(y: Any) -> Any:
    """Where to work out what is to be in y: y itself, or an empty array of its shape and working dtype."""
    dtype = working_dtype(y.dtype)
    return y if y.dtype == dtype else np.empty_like(y, dtype=dtype)


def settle(y: Any, worked: Any) -> None:
    """Round into y what was worked out in `room(y)`, if that was not y itself."""
    if worked.dtype != y.dtype:
        y[...] = worked
