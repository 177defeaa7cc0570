"""Mask: dropout, with masks that depend only on the positions of elements."""

import math
from collections.abc import Iterable

import numpy as np

from simdist.arrays import Array, charge, moved
from simdist.arrays.blocks import blocks
from simdist.arrays.working import rounded, working_dtype

__all__ = ["dropout", "kept"]


def dropout(x: Array, keep: Array, share: float, itemsize: int | None = None) -> Array:
    """Returns x where `keep` is true, scaled up by 1 / (1 - share), and zero elsewhere. It is its own backward.

    Args:
        itemsize: of the numbers as stored, if x is in its working dtype.

    Source: Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov 2014, J. Mach. Learn. Res. 15, 1929-1958.
    """
    y = np.multiply(x, keep, dtype=working_dtype(x.dtype))
    y *= 1 / (1 - share)
    charge(2 * x.size, 2 * x.size * (itemsize or x.itemsize) + keep.nbytes)
    return rounded(y, x.dtype)


def kept(
    shape: tuple[int, ...], like: Array, key: int, counters: Iterable[Array], first_column: int, share: float
) -> Array:
    """The elements of an array that dropout keeps: a function only of the key and of their positions.

    A counter-based generator: an element's random number is a hash of its row's counters and its column, so
    a part of the mask has the same values on any rank.

        key, sample --mix--> , head --mix--> , token --mix--> a, b        64 bits a row
        a ^ column · golden --mix--> ^ b --mix--> 32 bits an element      kept if they are at least share · 2³²

    Args:
        shape: of the array that elements are dropped from.
        like: an array of its kind.
        key: 64 bits.
        counters: the numbers of the rows; arrays of integers, one for each axis before the last.
        first_column: the number of the first element of the last axis.
        share: of elements to drop, at least 0 and below 1.

    Returns:
        Booleans of this shape.

    Source: Salmon, Moraes, Dror, Shaw 2011, SC '11 (counter-based generators); Steele, Lea, Flood 2014,
    OOPSLA '14 (the 64-bit mix); Wellons 2018, nullprogram.com/blog/2018/07/31, lowbias32 (the 32-bit mix, without its
    last step).
    """
    *axes, columns = shape
    keep = np.empty_like(like, shape=(math.prod(axes), columns), dtype=np.bool_)
    a, b = _row_keys(like, key, axes, counters)
    column = np.empty_like(like, shape=(columns,), dtype=np.uint32)
    column[...] = moved(np.arange(first_column, first_column + columns, dtype=np.uint32), like)
    column *= _GOLDEN_32
    threshold = min(round(share * 2**32), 2**32 - 1)
    for part in blocks(len(keep), columns * 4, like=like):
        np.greater_equal(_hash(a[part], b[part], column), threshold, out=keep[part])
    charge(9 * keep.size, keep.nbytes)
    return keep.reshape(shape)


def _hash(a: Array, b: Array, column: Array) -> Array:
    """32 bits for each row and column; the upper bits are the better mixed."""
    h = np.bitwise_xor(a, column)
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= b
    h ^= h >> 15
    h *= 0x846CA68B
    return h


_GOLDEN_32 = 0x9E3779B1
_GOLDEN_64 = 0x9E3779B97F4A7C15


def _row_keys(like: Array, key: int, axes: list[int], counters: Iterable[Array]) -> tuple[Array, Array]:
    """Two numbers of 32 bits for each row, each of shape (rows, 1)."""
    state: Array = key
    for i, counter in enumerate(counters):
        here = np.empty_like(like, shape=[n if i == j else 1 for j, n in enumerate(axes)], dtype=np.uint64)
        here[...] = moved(counter, like).astype(np.uint64).reshape(here.shape)
        here *= _GOLDEN_64
        state = _mix(here ^ state)
    flat = state.reshape(-1, 1)
    return flat.astype(np.uint32), (flat >> 32).astype(np.uint32)


def _mix(x: Array) -> Array:
    """Make every bit of 64 depend on every other."""
    x ^= x >> 30
    x *= 0xBF58476D1CE4E5B9
    x ^= x >> 27
    x *= 0x94D049BB133111EB
    x ^= x >> 31
    return x
