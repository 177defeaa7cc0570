"""Reduction: the operations with which a collective can reduce arrays."""

import inspect
from collections.abc import Callable
from typing import Any, final

import ml_dtypes
import numpy as np

from simdist.arrays.meter import current_meter
from simdist.arrays.phantom import Phantom
from simdist.arrays.working import overflow, short
from simdist.errors import ArgumentError, UnknownNameError, require_known

__all__ = ["Reduction", "reduction", "reductions"]

# ml_dtypes widens, adds and rounds one number at a time; NumPy, told to compute in float32, blocks of them: for long
# arrays in half the time, with the same bits.
_BFLOAT16, _LONG = np.dtype(ml_dtypes.bfloat16), 8192
_WIDE = {"dtype": np.float32, "casting": "same_kind"}


@final
class Reduction:
    """An associative, commutative operation on arrays: `op(x, y)` leaves x op y in x.

    Works on any array that supports NumPy's ufunc protocol. On float16 and bfloat16 it computes in float32, and rounds
    each result: a sum over p arrays rounds p - 1 times. Their overflow gives Inf without a warning: a loss scale
    detects it. Cost: x.size operations; x and y are read and x is written, 3 * x.nbytes.

    Make your own from a ufunc, or from a function with the same effect, and pass it as op=:

        all_reduce(x, comm, op=Reduction("gcd", np.gcd))

    Args:
        name: must be the same on all ranks, which compare it.
        ufunc: f(x, y, out=None) -> x op y, item by item, written to `out` if given, which may be x.

    Raises:
        ArgumentError: ufunc cannot be called like this.
    """

    __slots__ = ("name", "ufunc")

    def __init__(self, name: str, ufunc: Callable[..., Any]) -> None:
        if not callable(ufunc) or not _takes_out(ufunc):
            raise ArgumentError(f"Reduction {name!r} of {ufunc!r}; needs a ufunc or a function f(x, y, out=None)")
        self.name = name
        self.ufunc = ufunc

    def fold(self, x: Any, y: Any) -> None:
        """Fold y into x, in place."""
        size = x.size
        if type(x) is Phantom:
            x[...] = y  # no numbers: only checks that y fits
        elif x.dtype in short:
            self.combine(x, y, x)
        elif size == 1 and self.known:  # in place NumPy is three times slower: it checks whether x and x overlap
            x[...] = self.ufunc(x, y)
        else:
            self.ufunc(x, y, out=x)
        meter = current_meter()
        if meter is not None:
            meter.charge(size, 3 * x.nbytes)

    def combine(self, x: Any, y: Any, out: Any = None) -> Any:
        """Returns x op y, in `out` if given; charges nothing."""
        if x.dtype in short:
            long = x.dtype == _BFLOAT16 and x.size >= _LONG and type(x) is np.ndarray
            wide: dict[str, Any] = _WIDE if long and self.ufunc in (np.add, np.multiply) else {}
            with overflow(x.dtype):
                return self.ufunc(x, y, out=out, **wide)
        return self.ufunc(x, y, out=out)

    @property
    def known(self) -> bool:
        """Whether it is one of `reductions`, which have kernels, and not a user's."""
        return _REDUCTIONS.get(self.name) is self

    __call__ = fold

    def __repr__(self) -> str:
        return f"Reduction({self.name})"


def _takes_out(function: Callable[..., Any]) -> bool:
    """Whether f(x, y) and f(x, y, out=x) are calls with the right arguments; also of what has no signature."""
    try:
        call = inspect.signature(function)
    except ValueError:
        return True
    try:
        call.bind(0, 0)
        call.bind(0, 0, out=0)
    except TypeError:
        return False
    return True


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
    """The reduction named `op`; a Reduction is returned as it is.

    Raises:
        UnknownNameError: no reduction has this name.
    """
    if isinstance(op, Reduction):
        return op
    if not isinstance(op, str):
        raise ArgumentError(f"op must be a name or a Reduction, not {op!r}")
    if op in ("mean", "avg"):
        raise UnknownNameError(f"unknown op {op!r}: sum, and divide by the number of ranks")
    require_known("op", op, _REDUCTIONS)
    return _REDUCTIONS[op]
