"""Phantom: an array with a shape and a dtype but no data, for arrays too big for memory.

It supports NumPy's own functions (`np.add(x, y, out=x)`, `np.matmul(x, w)`, `np.empty_like(x)`), arithmetic,
slicing and `reshape`, so the code above need not know that nothing is computed. Where a shape depends on data
(`nonzero`), it is the largest possible one.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from simdist.errors import ArrayError

__all__ = ["Phantom", "phantom"]

Shape = tuple[int, ...]

_ITEM = bytes(1)  # the memory of all elements, whatever the shape
_MOST = 2**63 - 1  # items, as in NumPy
_blank = object.__new__  # skips the checks of __init__


class Phantom(NDArrayOperatorsMixin):
    """The shape and the dtype of an array without data.

    Args:
        shape: as of any array.
        dtype: as of any array; determines `nbytes`, which messages and meters charge.

    Attributes:
        base: as in NumPy, the array that this one is a view of; None if it is not a view.
    """

    __slots__ = ("__weakref__", "base", "dtype", "shape", "size")

    def __init__(self, shape: int | Shape, dtype: Any = np.float32) -> None:
        self.shape: Shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.size = math.prod(self.shape)
        if self.size > _MOST:
            raise ArrayError(f"an array of shape {self.shape} has {self.size:.3g} items; needs at most {_MOST:.3g}")
        self.base: Phantom | None = None

    ndim = property(lambda self: len(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.dtype.itemsize)
    T = property(lambda self: self._view(self.shape[::-1]))
    flags = np.empty(0).flags  # contiguous, and may be written to

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        raise ArrayError(f"a phantom of shape {self.shape} has no numbers to be true or false; decide by shapes")

    def __repr__(self) -> str:
        return f"Phantom({self.shape}, {self.dtype})"

    def __float__(self) -> float:
        if self.size != 1:
            raise ArrayError(f"only an array of one number is a number; this one has shape {self.shape}")
        return math.nan

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """A single number becomes NaN; with more, NumPy would convert one item at a time.

        Raises:
            ArrayError: there are more.
        """
        if self.size != 1:
            raise ArrayError(
                f"a phantom of shape {self.shape} has no numbers to put into a NumPy array; make that array by "
                "np.empty_like(x, shape=…) or x.copy(), so that it is a phantom where x is one"
            )
        return np.full(self.shape, math.nan, dtype)

    def __getitem__(self, key: Any) -> "Phantom":
        if type(key) is slice and len(self.shape) == 1:
            start, stop = key.start, key.stop
            if type(start) is int and type(stop) is int and 0 <= start <= stop <= self.size and key.step is None:
                size = stop - start  # a shortcut: collectives do this for every chunk
                return _made((size,), size, self.dtype, self if self.base is None else self.base)
            return self._view((len(range(*key.indices(self.size))),))
        keys = key if isinstance(key, tuple) else (key,)
        if any(getattr(k, "ndim", 0) for k in keys):  # NumPy's own integers index as Python's do
            return Phantom(self._picked(keys), self.dtype)
        return self._view(_hollow(self.shape)[key].shape)

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is ... and type(value) is Phantom and value.shape == self.shape:
            return
        there, shape = self.shape if key is ... else self[key].shape, _shape(value)
        if shape != there:
            _check_fits(shape, there)

    def _view(self, shape: Shape) -> "Phantom":
        """The same memory as an array of another shape."""
        return _made(shape, math.prod(shape), self.dtype, self if self.base is None else self.base)

    def _picked(self, keys: tuple[Any, ...]) -> Shape:
        """The shape of the items that arrays of indices select, one for each of the first axes."""
        if not all(hasattr(k, "dtype") and k.dtype.kind in "iu" for k in keys) or len(keys) > len(self.shape):
            raise ArrayError(f"a phantom of shape {self.shape} takes slices or arrays of integers, not {keys}")
        return _broadcast_shapes(*(k.shape for k in keys)) + self.shape[len(keys) :]

    # -- as in NumPy --------------------------------------------------------------------------------

    def reshape(self, *shape: Any) -> "Phantom":
        """As in NumPy."""
        return self._view(_hollow(self.shape).reshape(*shape).shape)

    def transpose(self, *axes: Any) -> "Phantom":
        """As in NumPy."""
        return self._view(_hollow(self.shape).transpose(*axes).shape)

    def swapaxes(self, one: int, other: int) -> "Phantom":
        """As in NumPy."""
        return self._view(_hollow(self.shape).swapaxes(one, other).shape)

    def copy(self) -> "Phantom":
        """As in NumPy."""
        return _made(self.shape, self.size, self.dtype, None)

    def astype(self, dtype: Any) -> "Phantom":
        """As in NumPy."""
        return Phantom(self.shape, dtype)

    def sum(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> "Phantom":
        """As in NumPy."""
        return Phantom(_reduced(np.add, self, axis, keepdims=keepdims), _dtype(np.add, "reduce", (self.dtype,), dtype))

    def max(self, axis: Any = None, keepdims: bool = False) -> "Phantom":
        """As in NumPy."""
        return Phantom(_reduced(np.maximum, self, axis, keepdims=keepdims), self.dtype)

    def nonzero(self) -> tuple["Phantom", ...]:
        """As in NumPy, if no number is zero."""
        return tuple(Phantom(self.size, np.intp) for _ in self.shape)

    # -- NumPy's protocols --------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if out is not None and method == "__call__" and ufunc.signature is None and not options:
            target = out[0]  # a shortcut for "x += y" of equal shapes, as in every fold
            if type(target) is Phantom and all(x is target or _shape(x) == target.shape for x in inputs):
                return target
        if method not in _SHAPES:
            return NotImplemented
        shape = _SHAPES[method](ufunc, *inputs, **options)
        if out is None:
            return Phantom(shape, _dtype(ufunc, method, tuple(map(_kind, inputs)), options.get("dtype")))
        if not isinstance(out[0], Phantom):
            raise ArrayError(f"{ufunc.__name__} of a phantom into an array that holds numbers")
        if shape != out[0].shape and _broadcast_shapes(shape, out[0].shape) != out[0].shape:
            raise ArrayError(f"{ufunc.__name__} of shapes that give {shape} into {out[0].shape}")
        return out[0]

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _FUNCTIONS:
            name, known = f"{function.__module__}.{function.__name__}", ", ".join(f.__name__ for f in _FUNCTIONS)
            raise ArrayError(
                f"{name} of a phantom; needs arithmetic, slices, x.sum(), ufuncs such as np.rint, or {known}"
            )
        return _FUNCTIONS[function](*args, **kwargs)


def _made(shape: Shape, size: int, dtype: Any, base: Phantom | None) -> Phantom:
    """A phantom from values that are known to be valid."""
    made = _blank(Phantom)
    made.shape, made.size, made.dtype, made.base = shape, size, dtype, base
    return made


# -- universal functions ------------------------------------------------------------------------------


_broadcast_shapes = lru_cache(maxsize=4096)(np.broadcast_shapes)  # a model repeats the same few


@lru_cache(maxsize=4096)
def _hollow(shape: Shape) -> Any:
    """A NumPy array of this shape over a single byte, by which NumPy itself computes shapes."""
    return np.ndarray(shape, np.uint8, _ITEM, strides=(0,) * len(shape))


def _shape(x: Any) -> Shape:
    return x.shape if hasattr(x, "shape") else np.shape(x)


def _check_fits(shape: Shape, there: Shape) -> None:
    """Raise ArrayError unless NumPy would assign one shape to the other: it may have leading axes of length 1."""
    whole = _broadcast_shapes(there, shape)
    if whole != (1,) * (len(whole) - len(there)) + there:
        raise ArrayError(f"cannot broadcast shape {shape} into shape {there}")


def _kind(x: Any) -> Any:
    return x.dtype if hasattr(x, "dtype") else type(x)


@lru_cache(maxsize=4096)
def _dtype(ufunc: np.ufunc, method: str, kinds: tuple[Any, ...], wanted: Any) -> Any:
    """The dtype that a ufunc of such operands returns; Python numbers count as such, and not as arrays."""
    if method != "__call__":
        return ufunc.reduce(np.ones((1, 1), kinds[0]), dtype=wanted).dtype
    operands = [np.ones((1, 1), kind) if isinstance(kind, np.dtype) else kind(1) for kind in kinds]
    return ufunc(*operands, dtype=wanted).dtype


def _broadcast(ufunc: np.ufunc, *inputs: Any, where: Any = True, **_: Any) -> Shape:
    shapes = [_shape(x) for x in inputs]
    if ufunc.signature is not None:
        return _GENERAL[ufunc](*shapes)
    if where is not True:
        shapes.append(_shape(where))
    return shapes[0] if all(shape == shapes[0] for shape in shapes) else _broadcast_shapes(*shapes)


def _reduced(ufunc: np.ufunc, x: Phantom, axis: Any = 0, dtype: Any = None, keepdims: bool = False, **_: Any) -> Shape:
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int | np.integer) else axis
    gone = {range(x.ndim)[i] for i in axes}
    return tuple(1 if i in gone else n for i, n in enumerate(x.shape) if keepdims or i not in gone)


def _reduced_at(ufunc: np.ufunc, x: Phantom, indices: Any, axis: int = 0, **_: Any) -> Shape:
    shape = list(x.shape)
    shape[axis] = len(indices)
    return tuple(shape)


_SHAPES: dict[str, Callable[..., Shape]] = {"__call__": _broadcast, "reduce": _reduced, "reduceat": _reduced_at}


def _matmul_shape(x: Shape, y: Shape) -> Shape:
    if len(x) < 2 or len(y) < 2 or x[-1] != y[-2]:
        raise ArrayError(f"matmul of shapes {x} and {y}: needs (…, m, k) and (…, k, n)")
    return (*_broadcast_shapes(x[:-2], y[:-2]), x[-2], y[-1])


def _vecdot_shape(x: Shape, y: Shape) -> Shape:
    if not x or not y or x[-1] != y[-1]:
        raise ArrayError(f"vecdot of shapes {x} and {y}: the last axes differ")
    return _broadcast_shapes(x[:-1], y[:-1])


_GENERAL: dict[Any, Callable[[Shape, Shape], Shape]] = {np.matmul: _matmul_shape, np.vecdot: _vecdot_shape}


# -- other functions ----------------------------------------------------------------------------------


def _empty_like(x: Phantom, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Phantom:
    return Phantom(x.shape if shape is None else shape, dtype or x.dtype)


def _copyto(destination: Any, source: Any, **_: Any) -> None:
    _check_fits(np.shape(source), destination.shape)


def _concatenate(arrays: Any, axis: int = 0) -> Phantom:
    others = [x.shape[:axis] + x.shape[axis:][1:] for x in arrays]
    if len(set(others)) > 1:
        raise ArrayError(f"concatenate of shapes {[x.shape for x in arrays]}: they differ outside of axis {axis}")
    joined = list(arrays[0].shape)
    joined[axis] = sum(x.shape[axis] for x in arrays)
    return Phantom(tuple(joined), np.result_type(*(x.dtype for x in arrays)))


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.argsort: lambda x, axis=-1, **_: Phantom(x.size if axis is None else x.shape, np.intp),
    np.array_equal: lambda x, y: x.shape == y.shape,
    np.bincount: lambda x, weights=None, minlength=0: Phantom(minlength, np.intp),
    np.concatenate: _concatenate,
    np.copyto: _copyto,
    np.cumsum: lambda x: Phantom(x.size, _dtype(np.add, "reduce", (x.dtype,), None)),
    np.empty_like: _empty_like,
    np.may_share_memory: lambda x, y: False,
    np.shape: lambda x: x.shape,
    np.size: lambda x: x.size,
    np.zeros_like: _empty_like,
}


def phantom(shape: int | Shape, dtype: Any = np.float32) -> Phantom:
    """An array of this shape and dtype that holds no numbers.

    Raises:
        ArrayError: a length is negative, or all together are more than NumPy counts.
    """
    lengths = shape if isinstance(shape, tuple | list) else (shape,)
    if not all(isinstance(length, int | np.integer) and not isinstance(length, bool) for length in lengths):
        raise ArrayError(f"an array of shape {shape!r}; needs a whole number, or a tuple of them")
    made = Phantom(tuple(map(int, lengths)), dtype)  # products of NumPy's own integers overflow
    if min(made.shape, default=0) < 0:
        raise ArrayError(f"an array of shape {made.shape}; needs lengths of at least 0")
    return made
