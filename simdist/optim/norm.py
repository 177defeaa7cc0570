"""Norm: the 2-norm of a vector, the same bits however the vector is cut into shards.

A sum of floats depends on the order in which they are added, a sum of integers does not. So each square is
rounded to a whole number of units, 2**-52 of the power of two above the largest square, and those are added:

    largest = 2.9          every |x| < 4 = 2**e, so every x² < 2**2e
    x²                     ------.---------------       float64
    x² + 2**2e             1-----.----                  whose mantissa is x² in units of 2**(2e - 52)

The mantissa is read as an integer. Rounding loses at most half a unit per square, no more than an ordinary float64
sum guarantees.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from simdist.arrays import Array, charge, kind_of
from simdist.arrays.fused import fused, kernel
from simdist.arrays.working import short

__all__ = ["Combine", "alone", "largest", "norm", "norms"]

Combine = Callable[[Array, str], None]
"""combine(values, op): replace the values, in place, by their reduction over all ranks that hold a shard. The op
is "max" for float64 and "sum" for int64; a NaN must survive a max."""

_MANTISSA = 52
_ROW = 4096  # mantissas of 52 bits, whose sum fits into 64 bits
_ROWS = 4  # at a time, which fit into a core's cache
_LIMB = 1 << 32
_PLAIN = 400  # exponents up to here can be squared; larger ones are divided out first


def alone(values: Array, op: str) -> None:
    """Combine without other shards: nothing to do."""


def norms(vectors: Sequence[Array], combine: Combine = alone) -> list[float]:
    """The 2-norm of each vector, of which this rank may hold only a shard.

    Every rank gets the same bits as one rank with the whole vectors.

    Args:
        vectors: this rank's shards, flat and of any real dtype; some may be empty. The same number on every rank.
        combine: called twice, on every rank: with len(vectors) float64 and with 2 len(vectors) int64.

    Returns:
        The norms: inf or nan if the vector holds one, 0 for a phantom.

    Cost: 5 operations an item; the vectors are read twice.
    """
    return _norms([[x] for x in vectors], combine)


def norm(parts: Sequence[Array], combine: Combine = alone) -> float:
    """The 2-norm of one vector, of which this rank holds these parts: see `norms`.

    The number of parts may differ between ranks, and may be 0.
    """
    return _norms([parts], combine)[0]


def _norms(vectors: Sequence[Sequence[Array]], combine: Combine) -> list[float]:
    """The norm of each vector, from the parts of it that this rank holds."""
    held = [x for parts in vectors for x in parts]
    charge(5 * sum(x.size for x in held), 2 * sum(x.nbytes for x in held))
    # NumPy's maximum keeps a NaN, Python's may not.
    tops = np.array([np.max([0.0, *map(largest, parts)]) for parts in vectors], np.float64)
    combine(tops, "max")
    exponents = [math.frexp(top)[1] if math.isfinite(top) else 0 for top in tops.tolist()]
    limbs = np.zeros((len(vectors), 2), np.int64)
    for i, parts in enumerate(vectors):
        if 0 < tops[i] < math.inf:
            limbs[i] = divmod(sum(_squares(x, exponents[i]) for x in parts if x.size), _LIMB)
    combine(limbs.reshape(-1), "sum")
    return [
        _root(high * _LIMB + low, exponent) if math.isfinite(top) else top
        for top, exponent, (high, low) in zip(tops.tolist(), exponents, limbs.tolist(), strict=True)
    ]


@fused("norm_of_vector")
def largest(x: Array) -> float:
    """The largest absolute value in x: 0 if x is empty or a phantom, nan if x holds one."""
    if x.size == 0 or kind_of(x) == "phantom":
        return 0.0
    if x.dtype not in short:
        return max(abs(float(x.max())), abs(float(x.min())))
    # NumPy's comparison of 16-bit floats is slow; without their signs, floats are ordered like their bits.
    bits, top = x.view(np.uint16), 0
    magnitude = np.empty_like(bits, shape=(min(x.size, _ROW * _ROWS),))
    for start in range(0, x.size, len(magnitude)):
        part = bits[start : start + len(magnitude)]
        np.bitwise_and(part, 0x7FFF, out=magnitude[: len(part)])
        top = max(top, int(magnitude[: len(part)].max()))
    return float(np.array([top], np.uint16).view(x.dtype)[0])


def _squares(x: Array, exponent: int) -> int:
    """The sum of the squares of x, all below 2**exponent, in units of 2**(2 * exponent - 52)."""
    shrink = abs(exponent) > _PLAIN
    squares = kernel("norm_of_vector", "squares", x)
    if squares is not None:
        return int(squares(x, exponent, shrink))
    ceiling = 1.0 if shrink else math.ldexp(1.0, 2 * exponent)
    base = int(np.float64(ceiling).view(np.int64))  # the bits of a square of zero units
    y = np.empty_like(x, shape=(min(x.size, _ROW * _ROWS),), dtype=np.float64)
    total = 0
    for start in range(0, x.size, len(y)):
        part = x[start : start + len(y)]
        square = y[: len(part)]
        square[...] = part
        if shrink:
            np.multiply(square, math.ldexp(1.0, -exponent // 2), out=square)
            np.multiply(square, math.ldexp(1.0, -exponent - -exponent // 2), out=square)
        np.multiply(square, square, out=square)
        np.add(square, ceiling, out=square)
        bits = square.view(np.int64)
        for row in range(0, len(bits), _ROW):
            items = bits[row : row + _ROW]
            total += (int(np.add.reduce(items)) - len(items) * base) % (1 << 64)  # the sum may have wrapped around
    return total


def _root(units: int, exponent: int) -> float:
    """The square root of `units` times 2**(2 * exponent - 52)."""
    try:
        return math.ldexp(math.sqrt(units), exponent - _MANTISSA // 2)
    except OverflowError:  # each item is finite, and the norm is not
        return math.inf
