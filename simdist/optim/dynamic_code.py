"""Dynamic code: numbers from -1 to 1 as one byte each, precise near zero as well as near one."""

from functools import cache

import numpy as np

from simdist.arrays import Array
from simdist.arrays.take import take

__all__ = ["DynamicCode", "dynamic_code"]

_DECADES = 7  # of the signed numbers
_DROPPED_BITS = 12  # of a float32's 23 bits of fraction; the other 20 bits index a table


class DynamicCode:
    """256 numbers, in decades with twice as many numbers each as the decade below.

        signed      10⁻⁷ … 10⁻⁶: 1   …   0.01 … 0.1: 32   0.1 … 1: 64,   the same below zero, 0 and 1
        unsigned    10⁻⁸ … 10⁻⁷: 1   …   0.01 … 0.1: 64   0.1 … 1: 128,  and 1

    A decade is cut into equal parts, and its numbers are their centers. The lowest signed number, -0.993, is replaced
    by -1, so that the largest number of a block is decoded exactly, whatever its sign, and so that encoding decoded
    numbers again changes nothing.

    The unsigned code has no 0, but one more decade. It is for divisors: if a small number were decoded as 0, the
    quotient would be unbounded.

    Attributes:
        values: the numbers, float32, ascending; a number's code is its index.

    Source: Dettmers et al. 2022, arXiv 2110.02861, section 2 (dynamic quantization), with the numbers of its
    library, bitsandbytes; Li, Chen, Zhu 2023, arXiv 2309.01507, which leaves out the 0 for divisors ("zero-point
    problem").
    """

    def __init__(self, signed: bool) -> None:
        decades, values = (_DECADES, [0.0, 1.0]) if signed else (_DECADES + 1, [1.0])
        for decade in range(decades):
            edges = np.linspace(0.1, 1, 2**decade + 1)
            middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade + 1 - decades)
            values.extend(middles)
            if signed:
                values.extend(-middles)
        values.sort()
        if signed:
            values[0] = -1.0
        self.values = np.array(values, np.float32)
        bits = np.arange(1 << (32 - _DROPPED_BITS), dtype=np.uint32) << _DROPPED_BITS
        centers = (bits | 1 << (_DROPPED_BITS - 1)).view(np.float32)
        limits = (self.values[:-1] + self.values[1:]) / 2
        self._table = np.searchsorted(limits, centers).astype(np.uint8)

    def encode(self, x: Array, out: Array) -> None:
        """Write to `out`, uint8, the codes of the numbers nearest to x, float32, from -1 to 1.

        Of two numbers whose distances differ by less than 1/4096 of x, it may be either.
        """
        out[...] = take(self._table, x.view(np.uint32) >> _DROPPED_BITS)

    def decode(self, codes: Array, out: Array) -> None:
        """Write to `out` the numbers of these codes."""
        out[...] = take(self.values, codes)


@cache
def dynamic_code(signed: bool) -> DynamicCode:
    """The signed or the unsigned code; its tables, 1 MiB, are made once."""
    return DynamicCode(signed)
