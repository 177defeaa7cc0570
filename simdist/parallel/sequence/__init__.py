"""Sequence parallelism: the tokens of each text are split over the ranks of the axis sp."""

from simdist.parallel.sequence.ring import (
    RINGS,
    RingAttention,
    ring_attention_block,
    ring_attention_bytes,
    ring_attention_cost,
)
from simdist.parallel.sequence.split import Even, Split, Zigzag, causal_pairs
from simdist.parallel.sequence.ulysses import UlyssesAttention, ulysses_elements

__all__ = [
    "RINGS",
    "Even",
    "RingAttention",
    "Split",
    "UlyssesAttention",
    "Zigzag",
    "causal_pairs",
    "ring_attention_block",
    "ring_attention_bytes",
    "ring_attention_cost",
    "ulysses_elements",
]
