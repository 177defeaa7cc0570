"""Kind: the kind of an array, as a name that can be sent to other ranks; and conversion between kinds."""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from simdist.arrays.phantom import Phantom, phantom
from simdist.errors import WorldUnavailable, require_known

__all__ = ["address", "device_library", "empty", "kind_of", "moved", "on_host", "owner"]


def kind_of(x: Any) -> str:
    """The name of the kind of x."""
    kind: Any = type(x)
    return _kind_of(kind)


@lru_cache(maxsize=64)
def _kind_of(kind: Any) -> str:
    if issubclass(kind, Phantom):
        return "phantom"
    return "cupy" if kind.__module__.partition(".")[0] == "cupy" else "numpy"


def device_library() -> Any:
    """The module `simdist.arrays.device`, which needs CuPy.

    Raises:
        WorldUnavailable: CuPy cannot be imported.
    """
    try:
        return import_module("simdist.arrays.device")
    except ImportError as error:
        raise WorldUnavailable(
            f"arrays on a GPU need CuPy, which cannot be imported ({error}); install simdist[cuda12] or simdist[cuda13]"
        ) from None


_KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "numpy": np.empty,
    "cupy": lambda shape, dtype: device_library().empty(shape, dtype),
    "phantom": phantom,
}


def empty(kind: str, shape: int | tuple[int, ...], dtype: Any) -> Any:
    """A new array of this kind.

    Raises:
        UnknownNameError: there is no such kind.
        WorldUnavailable: the kind is "cupy", and CuPy is not installed.
    """
    require_known("kind of array", kind, _KINDS)
    return _KINDS[kind](shape, dtype)


def moved(x: Any, like: Any, locked: bool = False) -> Any:
    """x in the memory of `like`: x itself, or a copy. Nothing is moved to or from phantoms.

    Args:
        like: an array, or the name of a kind.
        locked: make a copy on the host in page-locked memory, which a device fills twice as fast.
    """
    if type(x) is type(like):
        return x
    kind = like if isinstance(like, str) else kind_of(like)
    here = kind_of(x)
    if here == kind or "phantom" in (here, kind):
        return x
    library = device_library()
    return library.from_host(x) if kind == "cupy" else library.to_host(x, locked)


def on_host(x: Any) -> Any:
    """x in memory that NumPy can read: x itself, or a copy."""
    return moved(x, "numpy")


def owner(x: Any) -> Any:
    """The array that owns the memory of x: x itself, or the one that it is ultimately a view of."""
    while hasattr(base := getattr(x, "base", None), "dtype"):
        x = base
    return x


def address(x: Any) -> int:
    """The address of x in its memory. Phantoms have none."""
    if kind_of(x) == "cupy":
        return int(x.data.ptr)
    return int(x.__array_interface__["data"][0])
