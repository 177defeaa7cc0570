"""Rings: what ring attention sends in a training step, by its passes on the record."""

from collections.abc import Iterator
from typing import NamedTuple

from simdist.collectives import Cost
from simdist.parallel.sequence import RINGS, ring_attention_cost
from simdist.trace import Span, Trace
from simdist.training.gauge import STEP

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


def rings(trace: Trace, ranks: int, itemsize: int, rank: int = 0) -> Rings:
    """Of the last step on the record; nothing where it has no such passes.

    Args:
        ranks: of each ring.
        itemsize: of keys and values.

    Source: Liu, Zaharia, Abbeel 2023, arXiv 2310.01889: a block of keys and values goes from each rank to the next,
    while that works on another.
    """
    costs = list(_costs(trace, ranks, itemsize, rank))
    formula = sum((2 if backward else 1) * (ranks - 1) * span.bytes for span, backward, _ in costs)
    return Rings(sum(c.messages for *_, c in costs), sum(c.sent_bytes for *_, c in costs), formula)


def _costs(trace: Trace, ranks: int, itemsize: int, rank: int) -> Iterator[tuple[Span, bool, Cost]]:
    """Each pass, whether it goes backward, and what it costs."""
    own = [s for s in trace if s.rank == rank]
    last = next((s for s in reversed(own) if s.name == STEP), None)
    for span in own:
        if span.name in RINGS and last and last.start_s <= span.start_s and span.end_s <= last.end_s:
            backward = span.name == RINGS[1]
            yield span, backward, ring_attention_cost(ranks, span.bytes, itemsize, backward=backward)
