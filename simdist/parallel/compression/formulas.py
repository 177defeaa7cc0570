"""Formulas: how much smaller rounded gradients are, and how much noise the rounding adds."""

from math import log2, sqrt

from simdist.errors import ArgumentError, require_least

__all__ = ["qsgd_variance", "quantization_ratio"]


def quantization_ratio(levels: int, bits: int = 32) -> float:
    """bits / lg(levels): the size of an item divided by that of one of its levels, without scales.

    Signs have 2 levels (32 times smaller than 32 bits), TernGrad 3 (20.2 times), 8 bits 256 (4 times).

    Args:
        levels: how many values an item can be rounded to, at least 2.
        bits: of an item before.

    Raises:
        ArgumentError: levels is less than 2.

    Source: Seide et al. 2014, Interspeech (signs); Wen et al. 2017, arXiv 1705.07878 (TernGrad).
    """
    require_least("levels", levels, 2)
    return bits / log2(levels)


def qsgd_variance(items: int, levels: int) -> float:
    """min(n/s², √n/s): the most variance that QSGD's rounding adds, in units of ‖v‖².

    An item of v is rounded at random, without bias, to one of the multiples of ‖v‖/s around it.

    Args:
        items: n, that share a norm: a bucket.
        levels: s, above zero; a sign comes on top.

    Raises:
        ArgumentError: items or levels is less than 1.

    Source: Alistarh et al. 2017, arXiv 1610.02132, section 3: with 4 bits and buckets of 512 it is at most 1.41.
    """
    if items < 1 or levels < 1:
        raise ArgumentError(f"{items} items in {levels} levels; needs at least 1 of each")
    return min(items / levels**2, sqrt(items) / levels)
