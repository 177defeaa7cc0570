"""Sequence parallelism: texts cut along their tokens over the ranks of the axis sp."""

from simdist.parallel.sequence.ring import RingAttention
from simdist.parallel.sequence.split import Even, Split, Zigzag
from simdist.parallel.sequence.ulysses import UlyssesAttention

__all__ = ["Even", "RingAttention", "Split", "UlyssesAttention", "Zigzag"]
