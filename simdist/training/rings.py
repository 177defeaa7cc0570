"""Rings: what ring attention sends in a training step, by its passes on the record."""

from typing import NamedTuple

from simdist.parallel.sequence import RINGS, ring_attention_cost
from simdist.trace import Trace
from simdist.training.traffic import last_step

__all__ = ["Rings", "rings"]


class Rings(NamedTuple):
    """What a rank sends in all its passes of a step.

    Attributes:
        messages, sent_bytes: counted by `ring_attention_cost`.
        formula_bytes: by the paper, in which derivatives have no more bytes than what they are of.
    """

    messages: int = 0
    sent_bytes: int = 0
    formula_bytes: int = 0


def rings(trace: Trace, ranks: int, itemsize: int) -> Rings:
    """Of rank 0 in the last step on the record; nothing where it has no such passes.

    Args:
        ranks: of each ring.
        itemsize: of keys and values.

    Source: Liu, Zaharia, Abbeel 2023, arXiv 2310.01889: a block of keys and values goes from each rank to the next,
    while that works on another.
    """
    total = Rings()
    for span in last_step(trace):
        if span.name in RINGS:
            backward = span.name == RINGS[1]
            cost = ring_attention_cost(ranks, span.bytes, itemsize, backward=backward)
            formula = (2 if backward else 1) * (ranks - 1) * span.bytes
            total = Rings(
                total.messages + cost.messages, total.sent_bytes + cost.sent_bytes, total.formula_bytes + formula
            )
    return total
