"""Moved: what a training step reads and writes in memory that ranks share, where its collectives send no messages."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from simdist.collectives import algorithms
from simdist.collectives.registry import Algorithm, find
from simdist.comm import Communicator
from simdist.trace import Span, Trace
from simdist.training.gauge import STEP
from simdist.training.traffic import Call, case_of

__all__ = ["MOVED", "Moved", "moved"]

MOVED = "bytes moved through shared memory a step, rank 0"
"""What a report calls them."""


class Moved(NamedTuple):
    """Bytes of one rank in the last step.

    Attributes:
        measured: read and written, on the record.
        predicted: by the algorithms' costs, in place or by way of copies, as the record shows it.
        by_messages: what the paper of the first algorithm by messages would have sent in their place: the ring's,
            where there is one.
    """

    measured: float
    predicted: float
    by_messages: float

    def figures(self) -> tuple[str, str, str]:
        """As text for a report."""
        return f"{self.measured:,.0f}", f"{self.predicted:,.0f}", f"by messages {self.by_messages:,.0f}"


def moved(trace: Trace, step: Mapping[Call, int], comm: Communicator, itemsize: int) -> Moved | None:
    """Of rank 0; None if it has moved nothing that way.

    Args:
        step: the collectives of the step.
        itemsize: bytes an item of a gradient.
    """
    direct = {call: count for call, count in step.items() if not find(*call[:2]).by_messages}
    spans = list(_moves(trace))
    if not direct or not spans:
        return None
    by_messages = sum(_rival(call).formula(case_of(call, comm, itemsize)).bytes * n for call, n in direct.items())
    return Moved(sum(s.bytes for s in spans), _predicted(trace, spans, direct, comm, itemsize), by_messages)


def _moves(trace: Trace, rank: int = 0) -> Iterator[Span]:
    """What a rank moved in the last step on the record."""
    steps = [s for s in trace if s.name == STEP and s.rank == rank]
    if steps:
        start_s, end_s = steps[-1].start_s, steps[-1].end_s
        yield from (
            s for s in trace if s.rank == rank and s.name == "move" and start_s <= s.start_s <= s.end_s <= end_s
        )


def _rival(call: Call) -> Algorithm:
    """What would have done it by messages."""
    names = algorithms(call.operation)
    return find(call.operation, "ring" if "ring" in names else names[0])


def _predicted(trace: Trace, spans: list[Span], direct: Mapping[Call, int], comm: Communicator, itemsize: int) -> int:
    """By the costs of the ways that were taken."""
    inside: dict[Call, Counter[bool]] = defaultdict(Counter)
    for outer in trace:
        for call in direct:
            if outer.rank == 0 and (outer.name, outer.bytes, outer.detail) == (
                call.span_name,
                call.num_bytes,
                call.group,
            ):
                own = [
                    s
                    for s in spans
                    if s.stream == outer.stream and outer.start_s <= s.start_s <= s.end_s <= outer.end_s
                    if s.end_s > outer.start_s  # and is not the end of the one before
                ]
                if own:
                    inside[call]["posted" in own[0].detail] += 1
    total = 0
    for call, ways in inside.items():
        for staged, count in ways.items():
            cost = find(*call[:2]).cost(case_of(call, comm, itemsize), staged=staged)
            total += count * (cost.read_bytes + cost.written_bytes)
    return total
