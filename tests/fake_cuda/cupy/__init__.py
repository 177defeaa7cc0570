"""A stand-in for CuPy on a machine without a card: arrays that NumPy holds, and that refuse what CuPy's refuse.

Refused, as by CuPy 14: to become a NumPy array unasked, to meet one in an operation or an assignment, keywords that
its functions lack. Refused, though CuPy does it wrong: to copy what overlaps. Reductions give arrays of no axes, and no
numbers. Kernels are compiled for the processor, see `host_kernel`; memory that other processes may open lies in files,
see `cuda`.

Kernels and copies wait until something asks for their results; `_raw` is an array as it is meanwhile, `_held` afterwards.
"""

import numpy as np

from cupy import cuda
from cupy.host_kernel import RawKernel

__version__ = "14.fake"
__all__ = ["RawKernel", "asarray", "asnumpy", "cuda", "empty", "ndarray"]

_SCALARS = (bool, int, float, np.generic)
_COMPARISONS = ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")


def _inner(x, what="operation"):
    """What an operand holds."""
    if isinstance(x, ndarray):
        return x._held
    if isinstance(x, _SCALARS):
        return x
    raise TypeError(f"Unsupported type {type(x)} in {what}")


def _wrap(x, base=None):
    made = ndarray.__new__(ndarray)
    made._raw = np.asarray(x)
    made.base = None if base is None else base if base.base is None else base.base
    made._memory = None if base is None else base._memory
    return made


def _start_copy(to, x, casting="unsafe"):
    """Copy x, later on; but not what overlaps: CuPy has CUDA copy the bytes, in no order."""
    one, other = to._raw, x._raw
    same = to.dtype == x.dtype and to.shape == x.shape and to.strides == x.strides and one.flags.c_contiguous
    if same and one.ctypes.data != other.ctypes.data and np.may_share_memory(one, other):
        raise RuntimeError(f"copy of {x.nbytes} bytes to a place that overlaps them")
    if to.dtype == x.dtype and to.shape == x.shape:
        cuda.Stream.null.start(lambda: np.copyto(to._raw, x._raw))
        return
    with np.errstate(all="ignore"):
        np.copyto(to._held, x._held, casting=casting)


class _Flags:
    def __init__(self, flags):
        self.c_contiguous = flags.c_contiguous
        self.f_contiguous = flags.f_contiguous
        self.owndata = flags.owndata


class ndarray:
    """As of CuPy."""

    __array_priority__ = 100

    def __init__(self, shape, dtype=float, memptr=None):
        dtype = np.dtype(dtype)
        if dtype.hasobject or dtype.kind in "SUmM":
            raise ValueError(f"Unsupported dtype {dtype}")
        if memptr is None:
            self._raw = np.empty(shape, dtype)
            self._raw.reshape(-1).view(np.uint8)[...] = 0xCD  # nobody may count on zeros
        else:
            self._raw = cuda.at(memptr.ptr, shape, dtype)
        self._memory = memptr
        self.base = None

    @property
    def _held(self):
        cuda.Stream.null.synchronize()
        return self._raw

    shape = property(lambda self: self._raw.shape, lambda self, shape: setattr(self, "_raw", self._raw.reshape(shape)))
    dtype = property(lambda self: self._raw.dtype)
    size = property(lambda self: self._raw.size)
    ndim = property(lambda self: self._raw.ndim)
    nbytes = property(lambda self: self._raw.nbytes)
    itemsize = property(lambda self: self._raw.itemsize)
    strides = property(lambda self: self._raw.strides)
    flags = property(lambda self: _Flags(self._raw.flags))
    T = property(lambda self: _wrap(self._raw.T, self))
    __cuda_array_interface__ = property(
        lambda self: {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.data.ptr, False),
            "version": 3,
            "strides": None,
        }
    )

    @property
    def data(self):
        return cuda.MemoryPointer(cuda.UnownedMemory(self._raw.ctypes.data, self.nbytes, self), 0)

    # -- conversions

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def get(self, stream=None, order="C", out=None, blocking=True):
        if out is None:
            return self._held.copy()
        out[...] = self._held
        return out

    def set(self, arr, stream=None):
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype or arr.shape != self.shape:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        self._held[...] = arr

    def __float__(self):
        return float(self._held.item())

    def __int__(self):
        return int(self._held.item())

    def __bool__(self):
        return bool(self._held)

    def __repr__(self):
        return repr(self._held)

    def __len__(self):
        return len(self._held)

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def item(self):
        return self._held.item()

    def tolist(self):
        return self._held.tolist()

    def tobytes(self):
        return self._held.tobytes()

    def tofile(self, file):
        self._held.tofile(file)

    # -- views and copies

    def reshape(self, *shape):
        made = (self._raw if self._raw.flags.c_contiguous else self._held).reshape(*shape)
        return _wrap(made, self if np.shares_memory(made, self._raw) else None)

    def ravel(self):
        return self.reshape(-1)

    def transpose(self, *axes):
        return _wrap(self._raw.transpose(*axes), self)

    def swapaxes(self, one, other):
        return _wrap(self._raw.swapaxes(one, other), self)

    def view(self, dtype=None):
        made = self._raw.view() if dtype is None else self._raw.view(dtype)
        if not made.flags.aligned:  # CuPy makes such a view, and the first kernel that reads it fails
            raise ValueError("misaligned address")
        return _wrap(made, self)

    def copy(self, order="C"):
        return _wrap(self._held.copy(order))

    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        dtype = np.dtype(dtype)
        if not copy and dtype == self.dtype:
            return self
        with np.errstate(all="ignore"):
            return _wrap(self._held.astype(dtype))

    def fill(self, value):
        if isinstance(value, np.ndarray) and value.shape:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self._held.fill(value._held[()] if isinstance(value, ndarray) else np.asarray(value).astype(self.dtype)[()])

    def _key(self, key):
        keys = key if isinstance(key, tuple) else (key,)
        inner = tuple(k._held if isinstance(k, ndarray) else k for k in keys)
        return inner if isinstance(key, tuple) else inner[0]

    def __getitem__(self, key):
        keys = key if isinstance(key, tuple) else (key,)
        if all(
            k is None or k is ... or (isinstance(k, slice | int | np.integer) and type(k) is not bool) for k in keys
        ):
            return _wrap(self._raw[keys if ... in keys else (*keys, ...)], self)  # of one item, too, and of none
        return _wrap(self._held[self._key(key)])

    def __setitem__(self, key, value):
        if isinstance(value, np.ndarray) and value.shape:
            if isinstance(key, slice) and key == slice(None):
                raise ValueError("copying a numpy.ndarray by empty slice assignment")
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        if isinstance(value, ndarray) and (to := self[key]).base is not None:
            _start_copy(to, value)
            return
        with np.errstate(all="ignore"):
            self._held[self._key(key)] = value._held if isinstance(value, ndarray) else value

    # -- reductions: arrays of no axes, too

    def sum(self, axis=None, dtype=None, out=None, keepdims=False):
        return self._reduced(np.add, axis, dtype, keepdims, out)

    def max(self, axis=None, out=None, keepdims=False):
        return self._reduced(np.maximum, axis, None, keepdims, out)

    def min(self, axis=None, out=None, keepdims=False):
        return self._reduced(np.minimum, axis, None, keepdims, out)

    def _reduced(self, ufunc, axis, dtype, keepdims, out=None):
        held = self._held
        if ufunc is np.add and dtype is None and held.dtype.kind in "biu":
            dtype = np.sum(np.empty(0, held.dtype)).dtype
        with np.errstate(all="ignore"):
            found = _wrap(ufunc.reduce(held, axis=axis, dtype=dtype, keepdims=keepdims))
        if out is None:
            return found
        out._held[...] = found._held
        return out

    def all(self, axis=None, out=None, keepdims=False):
        return _wrap(self._held.all(axis=axis, keepdims=keepdims))

    def any(self, axis=None, out=None, keepdims=False):
        return _wrap(self._held.any(axis=axis, keepdims=keepdims))

    def argmax(self, axis=None, dtype=None, out=None, keepdims=False):
        return _wrap(self._held.argmax(axis=axis))

    def nonzero(self):
        return tuple(map(_wrap, self._held.nonzero()))

    # -- NumPy's protocols

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if method not in ("__call__", "outer", "at", "reduce", "accumulate", "reduceat"):
            return NotImplemented
        if ufunc.__name__ not in _UFUNCS or (method == "reduceat" and ufunc.__name__ != "add"):
            return NotImplemented
        if "out" in options:
            (options["out"],) = options["out"]
        if ufunc.__name__ in _COMPARISONS:
            inputs = tuple(x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in inputs)
        return _ufunc(ufunc, method, *inputs, **options)

    def __array_function__(self, function, types, args, kwargs):
        name = function.__name__
        if name not in _FUNCTIONS or not all(issubclass(t, ndarray | np.ndarray) for t in types):
            return NotImplemented
        return _FUNCTIONS[name](*args, **kwargs)


def _ufunc(ufunc, method, *inputs, out=None, dtype=None, casting="same_kind", axis=None, keepdims=None, **rest):
    if rest:
        raise TypeError(f"Wrong arguments {rest}")
    options = {"axis": axis} if method in ("reduce", "reduceat") else {}
    if keepdims is not None:
        options["keepdims"] = keepdims
    if dtype is not None:
        options["dtype"] = dtype
    if method == "__call__" and dtype is not None:
        options["casting"] = casting
    inner = [x if method == "reduceat" and isinstance(x, list) else _inner(x, ufunc.__name__) for x in inputs]
    if method == "reduceat" and axis is None:
        options["axis"] = 0
    if method == "reduce" and axis is None and "axis" in options:
        options["axis"] = 0
    with np.errstate(all="ignore"):
        found = getattr(ufunc, method)(*inner, **options) if method != "__call__" else ufunc(*inner, **options)
        if out is None:
            return _wrap(np.asarray(found, order="C"))  # and not in the order of its operands' axes
        if not isinstance(out, ndarray):
            raise TypeError(f"output must be a cupy.ndarray, not {type(out)}")
        np.copyto(out._held, found, casting=casting)
    return out


_UFUNCS = {
    *("add", "subtract", "multiply", "divide", "true_divide", "negative", "absolute", "maximum", "minimum", "sqrt"),
    *("exp", "log", "tanh", "logical_or", "logical_and", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("left_shift", "right_shift", "isfinite", "isnan", "floor_divide", "remainder", "sign", "rint", "square"),
    *("power", "invert", "signbit", "matmul", "log2", "floor", "ceil", "ldexp", "divmod"),
    *_COMPARISONS,
}  # and no vecdot


def _operator(ufunc, swap=False, in_place=False):
    def operate(self, other):
        if in_place:
            return _ufunc(ufunc, "__call__", self, other, out=self)
        if not isinstance(other, (ndarray, *_SCALARS)):
            return NotImplemented if not isinstance(other, np.ndarray) else _inner(other)
        return _ufunc(ufunc, "__call__", *((other, self) if swap else (self, other)))

    return operate


for _name, _function in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "pow": np.power,
    "matmul": np.matmul,
}.items():
    setattr(ndarray, f"__{_name}__", _operator(_function))
    setattr(ndarray, f"__r{_name}__", _operator(_function, swap=True))
    setattr(ndarray, f"__i{_name}__", _operator(_function, in_place=True))
for _name, _function in {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}.items():
    setattr(ndarray, f"__{_name}__", _operator(_function))
ndarray.__neg__ = lambda self: _ufunc(np.negative, "__call__", self)
ndarray.__invert__ = lambda self: _ufunc(np.invert, "__call__", self)
ndarray.__abs__ = lambda self: _ufunc(np.absolute, "__call__", self)
ndarray.__hash__ = None


# -- functions -----------------------------------------------------------------------------------------


def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype)


def get_default_memory_pool():
    return cuda.MemoryPool()


def zeros(shape, dtype=float, order="C"):
    made = ndarray(shape, dtype)
    made._held[...] = np.zeros((), dtype)
    return made


def arange(*args, dtype=None):
    return _wrap(np.arange(*args, dtype=dtype))


def asarray(a, dtype=None, order=None):
    if isinstance(a, ndarray) and dtype in (None, a.dtype):
        return a
    if not isinstance(a, ndarray) and np.asarray(a).dtype.hasobject:
        raise ValueError("Unsupported dtype object")
    if type(a) is np.ndarray and a.ndim and cuda.pinned_at(a.ctypes.data) is not None:
        a, made = np.asarray(a, dtype, order=order), ndarray(a.shape, dtype or a.dtype)
        cuda.Stream.null.start(lambda: np.copyto(made._raw, a))  # without a copy of its own
        return made
    return _wrap(np.array(a._held if isinstance(a, ndarray) else a, dtype, copy=True, order=order or "K"))


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    return a.get(out=out) if isinstance(a, ndarray) else np.asarray(a)


def empty_like(prototype, dtype=None, order="K", subok=None, shape=None):
    made = ndarray(0, prototype.dtype if dtype is None else dtype)
    shape = shape if shape else None  # as CuPy 14: 0 and () count as not given, (0,) does not
    made._raw = np.empty_like(prototype._raw, made.dtype, order, shape=shape)  # its axes in the prototype's order
    made._raw[...] = np.full(made.itemsize, 0xCD, np.uint8).view(made.dtype)
    return made


def zeros_like(a, dtype=None, order="K", subok=None, shape=None):
    made = empty_like(a, dtype, shape=shape)
    made._held[...] = np.zeros((), made.dtype)
    return made


def copyto(dst, src, casting="same_kind", where=None):
    if isinstance(src, np.ndarray) and src.size != 1:
        raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
    if isinstance(src, ndarray):
        _start_copy(dst, src, casting)
        return
    with np.errstate(all="ignore"):
        np.copyto(dst._held, src, casting=casting)


def concatenate(tup, axis=0, out=None, *, dtype=None, casting="same_kind"):
    return _wrap(np.concatenate([_inner(x, "concatenate") for x in tup], axis=axis))


def stack(tup, axis=0, out=None, *, dtype=None, casting="same_kind"):
    return _wrap(np.stack([_inner(x, "stack") for x in tup], axis=axis))


def array_split(ary, indices_or_sections, axis=0):
    return [_wrap(part, ary) for part in np.array_split(ary._raw, indices_or_sections, axis)]


def packbits(a, axis=None, bitorder="big"):
    return _wrap(np.packbits(_inner(a, "packbits"), axis=axis, bitorder=bitorder))


def unpackbits(a, axis=None, bitorder="big"):
    return _wrap(np.unpackbits(_inner(a, "unpackbits"), axis=axis, bitorder=bitorder))


def may_share_memory(a, b, max_work=None):
    return np.may_share_memory(_inner(a), _inner(b))


def shares_memory(a, b, max_work=None):
    return np.shares_memory(_inner(a), _inner(b))


def argsort(a, axis=-1, kind=None):
    if kind not in (None, "stable"):
        raise ValueError("kind can only be None or 'stable'")
    return _wrap(np.argsort(a._held, axis=axis, kind="stable"))


def bincount(x, weights=None, minlength=None):
    return _wrap(np.bincount(x._held, minlength=minlength or 0))


def cumsum(a, axis=None, dtype=None, out=None):
    return _wrap(np.cumsum(a._held, axis=axis, dtype=dtype))


def array_equal(a1, a2, equal_nan=False):
    return _wrap(np.array_equal(_inner(a1), _inner(a2)))


def where(condition, x=None, y=None):
    return _wrap(np.where(*map(_inner, (condition, x, y))))


def argpartition(a, kth, axis=-1):
    return _wrap(np.argpartition(a._held, kth, axis=axis))


def sort(a, axis=-1, kind=None):
    return _wrap(np.sort(a._held, axis=axis))


def qr(a, mode="reduced"):
    return tuple(map(_wrap, np.linalg.qr(a._held, mode)))


def shape(a):
    return a.shape


def size(a, axis=None):
    return a.size


_FUNCTIONS = {
    f.__name__: f
    for f in (
        argpartition,
        argsort,
        array_equal,
        array_split,
        may_share_memory,
        packbits,
        unpackbits,
        qr,
        sort,
        bincount,
        concatenate,
        copyto,
        cumsum,
        empty_like,
        shape,
        shares_memory,
        size,
        stack,
        where,
        zeros_like,
    )
} | {"max": lambda a, **k: a.max(**k), "min": lambda a, **k: a.min(**k), "sum": lambda a, **k: a.sum(**k)}
