"""Reduction: the operations that a collective can fold arrays with."""

from typing import Any

import numpy as np

from simdist.arrays.meter import current_meter
from simdist.errors import ArgumentError, unknown_name

__all__ = ["Reduction", "reduction", "reductions"]


class Reduction:
    """An associative, commutative operation on arrays: `op(x, y)` leaves x op y in x.

    Works on whatever obeys NumPy's ufunc protocol. On float16 and bfloat16 it reckons in float32, and rounds
    what it leaves: a sum over p arrays rounds p - 1 times. Cost: x.size operations; x and y are read and x is
    written, 3 * x.nbytes.
    """

    __slots__ = ("name", "ufunc")

    def __init__(self, name: str, ufunc: np.ufunc) -> None:
        self.name = name
        self.ufunc = ufunc

    def fold(self, x: Any, y: Any) -> None:
        """Fold y into x, in place."""
        ufunc = self.ufunc
        size = x.size
        if size == 1:  # in place NumPy is three times as slow then: it goes to look whether x and x overlap
            x[...] = ufunc(x, y)
        else:
            ufunc(x, y, out=x)
        meter = current_meter()
        if meter is not None:
            meter.charge(size, 3 * x.nbytes)

    __call__ = fold

    def __repr__(self) -> str:
        return f"Reduction({self.name})"


_REDUCTIONS = {
    name: Reduction(name, ufunc)
    for name, ufunc in {
        "sum": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "prod": np.multiply,
        "lor": np.logical_or,
        "land": np.logical_and,
    }.items()
}


def reductions() -> list[str]:
    """The names of all reductions."""
    return list(_REDUCTIONS)


def reduction(op: str | Reduction) -> Reduction:
    """The reduction named `op`; a Reduction (one of your own, say) is returned as it is.

    Raises:
        UnknownNameError: no reduction has this name.
    """
    if isinstance(op, Reduction):
        return op
    if not isinstance(op, str):
        raise ArgumentError(f"op must be a name or a Reduction, not {op!r}")
    if op not in _REDUCTIONS:
        raise unknown_name("op", op, _REDUCTIONS)
    return _REDUCTIONS[op]
