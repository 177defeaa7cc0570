"""Formulas: how much smaller rounded gradients are, and how much noise the rounding adds."""

from math import log2, sqrt

from simdist.errors import ArgumentError, require_least

__all__ = ["qsgd_nonzeros", "qsgd_variance", "quantization_ratio"]


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
    _check(items, levels)
    return min(items / levels**2, sqrt(items) / levels)


def qsgd_nonzeros(items: int, levels: int) -> float:
    """min(n, s (s + √n)): the most items that QSGD's rounding leaves above or below zero, on average.

    At most s² are ‖v‖/s long or longer. A shorter one of length x is rounded away from zero with probability s x / ‖v‖,
    and the lengths of n items sum to √n ‖v‖ at most. With s = 1, a sign each for 1 + √n items are sent.

    Args:
        items, levels: n and s, as of `qsgd_variance`.

    Raises:
        ArgumentError: items or levels is less than 1.

    Source: Alistarh et al. 2017, arXiv 1610.02132, lemma 3.1.
    """
    _check(items, levels)
    return min(items, levels * (levels + sqrt(items)))


def _check(items: int, levels: int) -> None:
    """Raise ArgumentError if there are no items or levels."""
    if items < 1 or levels < 1:
        raise ArgumentError(f"{items} items in {levels} levels; needs at least 1 of each")
