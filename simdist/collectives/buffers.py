"""Buffers: what a collective may work on."""

from typing import Any

import numpy as np

from simdist.arrays import Array, hold
from simdist.comm import Communicator
from simdist.errors import ArgumentError, ArrayError

__all__ = ["check_communicator", "describe", "flat", "root_of", "scratch"]


def check_communicator(comm: Any, given: Any = None) -> None:
    """Raise ArgumentError unless comm is a communicator: not None, which `split(None)` returns, nor swapped with the
    argument before it, `given`.
    """
    if not hasattr(comm, "attached"):  # isinstance of an abstract class takes five times as long
        swapped = "; the communicator comes after the array" if isinstance(given, Communicator) else ""
        raise ArgumentError(f"comm is {type(comm).__name__} {comm!r:.60}; a collective needs a communicator{swapped}")


def flat(x: Array, comm: Communicator, writable: bool = True) -> Array:
    """x as one row of items, sharing its memory.

    Raises:
        ArrayError: x is no array, holds anything but native numbers or bools, is not C-contiguous, or is read-only.
    """
    if type(x) is np.ndarray:
        flags, dtype = x.flags, x.dtype
        if (flags.carray or (flags.c_contiguous and not writable)) and dtype.isbuiltin and not dtype.hasobject:
            return x if x.ndim == 1 else x.reshape(-1)  # the usual case
    if isinstance(x, np.ndarray):  # a subclass such as np.matrix, whose rows may differ from an array's
        x = np.asarray(x)
    if not hasattr(x, "dtype") or not hasattr(x, "reshape"):
        raise ArrayError(f"rank {comm.rank} gave {type(x).__name__} {x!r:.60}; a collective needs an array")
    dtype = x.dtype
    builtin = dtype.isbuiltin or (dtype.isnative and dtype.kind in "biufc")  # of an unpickled one isbuiltin is false
    if dtype.hasobject or not builtin:  # text, times, records, another byte order
        raise ArrayError(f"rank {comm.rank} gave an array of {dtype}; a collective needs native numbers or bools")
    if not x.flags.c_contiguous:
        layout = f"shape {x.shape}, strides {x.strides}"
        raise ArrayError(f"rank {comm.rank} gave an array that is not C-contiguous ({layout}); pass a copy")
    if writable and not getattr(x.flags, "writeable", True):  # so is a NumPy scalar; arrays on devices never are
        raise ArrayError(f"rank {comm.rank} gave a read-only array of shape {x.shape}; this collective writes to it")
    return x.reshape(-1)


def scratch(like: Array, shape: int | tuple[int, ...] | None = None) -> Array:
    """An empty working array of this one's kind and dtype; a ledger counts it as communication memory."""
    x = np.empty_like(like, shape=(shape,) if isinstance(shape, int) else shape)
    hold("communication", x, "a collective")
    return x


def describe(x: Array) -> str:
    """dtype and shape, for messages."""
    return f"{x.dtype}{list(x.shape)}"


def root_of(comm: Communicator, root: int) -> int:
    """root, which may be NumPy's, as a number of Python's; raises ArgumentError unless it is a rank of comm."""
    comm.check_peer("root", root)
    return int(root)
