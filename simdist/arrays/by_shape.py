"""By shape: functions of which phantoms need to know once what they make of arrays of a shape, and what that costs."""

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
    """What there is to know of a phantom."""

    shape: tuple[int, ...]
    dtype: Any


class _Heard:
    """Whatever was charged, in order."""

    def __init__(self) -> None:
        self.charges: list[tuple[int, int]] = []

    def charge(self, flops: int, bytes: int) -> None:
        self.charges.append((flops, bytes))


def by_shape(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function of many small steps go through them once for phantoms of each shape.

    Of phantoms, and tuples of these, it may depend on shapes, dtypes and other arguments alone; what it returns is new.
    After the first time it makes that at once, and charges what it charged then, in the same order. With a function
    among its arguments nothing is known of what it will do, and it goes through its steps again.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        if not (args and _hollow(args[0])) or any(map(callable, (*args, *kwargs.values()))):
            return function(*args, **kwargs)
        charges, made = _steps(function, _form(args), tuple((name, _form(x)) for name, x in sorted(kwargs.items())))
        for each in charges:
            charge(*each)
        return _again(made)

    return call


@lru_cache(maxsize=256)
def _steps(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]
) -> tuple[list[tuple[int, int]], Any]:
    """What a function charges, and what it returns."""
    heard = _Heard()
    with metered(heard):
        made = function(*_again(args), **{name: _again(x) for name, x in kwargs})
    return heard.charges, _form(made)


def _hollow(x: Any) -> bool:
    """Whether it is a phantom, or a tuple of which the first is one."""
    return _hollow(x[0]) if isinstance(x, tuple) and x else isinstance(x, Phantom)


def _form(x: Any) -> Any:
    """The same with forms in place of phantoms, so that it can be looked up."""
    return _Form(x.shape, x.dtype) if isinstance(x, Phantom) else _each(_form, x)


def _again(x: Any) -> Any:
    """The same with phantoms in place of forms."""
    return Phantom(x.shape, x.dtype) if isinstance(x, _Form) else _each(_again, x)


def _each(change: Callable[[Any], Any], x: Any) -> Any:
    """A tuple, be it named, of changed entries; all else as it is."""
    if not isinstance(x, tuple):
        return x
    entries = map(change, x)
    return type(x)(*entries) if hasattr(x, "_fields") else tuple(entries)
