"""Fused: functions with a kernel for the device, which takes a pass or two over memory where NumPy takes many."""

from collections.abc import Callable
from functools import lru_cache, wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import numpy as np

from simdist.arrays.kind import kind_of, moved

__all__ = ["copied", "fused", "kernel"]

P = ParamSpec("P")
R = TypeVar("R")


def kernel(family: str, name: str, x: Any) -> Callable[..., Any] | None:
    """The function of `simdist.arrays.kernels.<family>` with this name if x is on the device, else None."""
    return _found(family, name) if kind_of(x) == "cupy" else None


@lru_cache(maxsize=256)
def _found(family: str, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f"simdist.arrays.kernels.{family}"), name)
    return found


def fused(family: str, argument: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """On the device, call the function of the same name in `simdist.arrays.kernels.<family>` instead.

    It takes the same arguments, returns the same, and charges the meter for its work. The decorated function defines
    what is computed, and computes it for every other kind of array.

    Args:
        argument: the position of the array whose kind decides.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__name__

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            x: Any = args[argument]
            if type(x) is np.ndarray:
                return function(*args, **kwargs)
            found: Callable[P, R] = kernel(family, name, x) or function
            return found(*args, **kwargs)

        return call

    return decorate


def copied(y: Any, x: Any) -> None:
    """Set y to x, rounded to y's dtype; from another memory it is moved afterwards, as fewer bytes."""
    if kind_of(x) != kind_of(y) and x.dtype != y.dtype:
        x = x.astype(y.dtype)
    x = moved(x, y)
    cast = None if x.dtype == y.dtype else kernel("cast", "cast", y)
    if cast is not None:
        cast(y, x)
    else:
        np.copyto(y, x, casting="same_kind")
