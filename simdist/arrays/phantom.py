"""Phantom: an array with a shape and a dtype and no numbers, for what is too big to hold.

It answers to NumPy's own functions (`np.add(x, y, out=x)`, `np.empty_like(x)`, slicing, `reshape`), so the
code above cannot tell, and need not, that nothing is computed.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from simdist.errors import ArrayError

__all__ = ["Phantom", "phantom"]

Shape = tuple[int, ...]


class Phantom:
    """The shape and the dtype of an array that is not there.

    Args:
        shape: as of any array.
        dtype: as of any array; gives `nbytes`, which messages and meters charge.
    """

    __slots__ = ("dtype", "shape", "size")

    def __init__(self, shape: int | Shape, dtype: Any = np.float32) -> None:
        self.shape: Shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.size = math.prod(self.shape)

    ndim = property(lambda self: len(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.dtype.itemsize)
    T = property(lambda self: Phantom(self.shape[::-1], self.dtype))
    flags = property(lambda self: np.empty(0, self.dtype).flags)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Phantom({self.shape}, {self.dtype})"

    def __getitem__(self, key: Any) -> "Phantom":
        if isinstance(key, slice) and len(self.shape) == 1:  # the case of every collective, without a detour
            return Phantom((len(range(*key.indices(self.shape[0]))),), self.dtype)
        return Phantom(self._hollow()[key].shape, self.dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        there = self[key].shape
        if np.broadcast_shapes(there, np.shape(value)) != there:
            raise ArrayError(f"cannot broadcast shape {np.shape(value)} into shape {there}")

    def reshape(self, *shape: Any) -> "Phantom":
        """As of NumPy."""
        return Phantom(self._hollow().reshape(*shape).shape, self.dtype)

    def copy(self) -> "Phantom":
        """As of NumPy."""
        return Phantom(self.shape, self.dtype)

    def astype(self, dtype: Any) -> "Phantom":
        """As of NumPy."""
        return Phantom(self.shape, dtype)

    def _hollow(self) -> Any:
        """A NumPy array of this shape that holds one item, so that NumPy itself works out shapes."""
        return np.broadcast_to(np.empty((), self.dtype), self.shape)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **_: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        shape = np.broadcast_shapes(*(np.shape(x) for x in inputs))
        if out is not None:
            if shape != out[0].shape:
                raise ArrayError(f"{ufunc.__name__} of shapes that give {shape} into {out[0].shape}")
            return out[0]
        kinds = [np.empty(0, x.dtype) if hasattr(x, "dtype") else x for x in inputs]
        return Phantom(shape, ufunc(*kinds).dtype)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _FUNCTIONS:
            return NotImplemented
        return _FUNCTIONS[function](*args, **kwargs)


def _empty_like(x: Phantom, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Phantom:
    return Phantom(x.shape if shape is None else shape, dtype or x.dtype)


def _copyto(destination: Any, source: Any, **_: Any) -> None:
    if np.broadcast_shapes(np.shape(source), destination.shape) != destination.shape:
        raise ArrayError(f"cannot copy an array of shape {np.shape(source)} into one of {destination.shape}")


def _concatenate(arrays: Any, axis: int = 0) -> Phantom:
    joined = list(arrays[0].shape)
    joined[axis] = sum(x.shape[axis] for x in arrays)
    return Phantom(tuple(joined), np.result_type(*(x.dtype for x in arrays)))


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.empty_like: _empty_like,
    np.zeros_like: _empty_like,
    np.copyto: _copyto,
    np.concatenate: _concatenate,
    np.shape: lambda x: x.shape,
    np.size: lambda x: x.size,
    np.array_equal: lambda x, y: x.shape == y.shape,
}


def phantom(shape: int | Shape, dtype: Any = np.float32) -> Phantom:
    """An array of this shape and dtype that holds no numbers."""
    return Phantom(shape, dtype)
