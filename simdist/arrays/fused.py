"""Fused: functions for which the device has a kernel that does in a pass or two what takes NumPy many."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import numpy as np

from simdist.arrays.kind import kind_of

__all__ = ["fused", "kernel"]

P = ParamSpec("P")
R = TypeVar("R")


def kernel(family: str, name: str, x: Any) -> Callable[..., Any] | None:
    """What does this on the device, if that is where x lies: a function of `simdist.arrays.kernels.<family>`."""
    if kind_of(x) != "cupy":
        return None
    found: Callable[..., Any] = getattr(import_module(f"simdist.arrays.kernels.{family}"), name)
    return found


def fused(family: str, argument: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the function of the same name in `simdist.arrays.kernels.<family>` do a function's work on the device.

    It takes the same arguments, returns the same, and charges the meter for what it does there. The function that is
    decorated says what is computed, and computes it for every other kind of array.

    Args:
        argument: the place of the array that says which kind it is.
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
