"""By shape: functions that run once for phantoms of each shape; later calls repeat the results and the charges."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from simdist.arrays.meter import charge, metered
from simdist.arrays.phantom import Phantom

__all__ = ["by_shape"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class _Form:
    """A phantom's shape and dtype, hashable."""

    shape: tuple[int, ...]
    dtype: Any


class _Charges:
    """Records all charges, in order."""

    def __init__(self) -> None:
        self.charges: list[tuple[int, int]] = []

    def charge(self, flops: int, bytes: int) -> None:
        self.charges.append((flops, bytes))


def by_shape(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function of many small steps run only once for phantoms of each shape.

    Its results must be new arrays, and depend only on the phantoms' shapes and dtypes, also in tuples, and on the other
    arguments. Later calls return such results at once, and repeat the charges in order. If an argument is a function,
    what it charges is unknown, so every call runs all steps.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        if not (args and _is_phantom(args[0])) or any(map(callable, (*args, *kwargs.values()))):
            return function(*args, **kwargs)
        named = tuple((name, _to_forms(x)) for name, x in sorted(kwargs.items()))
        charges, made = _steps(function, _to_forms(args), named)
        for each in charges:
            charge(*each)
        return _to_phantoms(made)

    return call


@lru_cache(maxsize=256)
def _steps(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]
) -> tuple[list[tuple[int, int]], Any]:
    """A call's charges and its results."""
    recorded = _Charges()
    with metered(recorded):
        made = function(*_to_phantoms(args), **{name: _to_phantoms(x) for name, x in kwargs})
    return recorded.charges, _to_forms(made)


def _is_phantom(x: Any) -> bool:
    """Whether x is a phantom, or a tuple that begins with one."""
    return _is_phantom(x[0]) if isinstance(x, tuple) and x else isinstance(x, Phantom)


def _to_forms(x: Any) -> Any:
    """x with forms in place of phantoms, so that it can be hashed."""
    return _Form(x.shape, x.dtype) if isinstance(x, Phantom) else _each(_to_forms, x)


def _to_phantoms(x: Any) -> Any:
    """x with phantoms in place of forms."""
    return Phantom(x.shape, x.dtype) if isinstance(x, _Form) else _each(_to_phantoms, x)


def _each(change: Callable[[Any], Any], x: Any) -> Any:
    """A tuple, named or not, with its entries changed; anything else unchanged."""
    if not isinstance(x, tuple):
        return x
    entries = map(change, x)
    return type(x)(*entries) if hasattr(x, "_fields") else tuple(entries)
