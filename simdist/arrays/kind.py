"""Kind: which of the sorts of array one is, by a name that can travel to other ranks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simdist.arrays.phantom import Phantom
from simdist.errors import unknown_name

__all__ = ["empty", "kind_of"]

_KINDS: dict[str, Callable[..., Any]] = {"numpy": np.empty, "phantom": Phantom}


def kind_of(x: Any) -> str:
    """The name of x's kind."""
    return "phantom" if isinstance(x, Phantom) else "numpy"


def empty(kind: str, shape: int | tuple[int, ...], dtype: Any) -> Any:
    """A new array of this kind.

    Raises:
        UnknownNameError: there is no such kind here.
    """
    if kind not in _KINDS:
        raise unknown_name("kind of array", kind, _KINDS)
    return _KINDS[kind](shape, dtype)
