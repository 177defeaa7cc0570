"""Shared memory: bytes that the collectives of a step read and write in shared memory, instead of sending messages."""

from collections.abc import Mapping
from typing import NamedTuple

from simdist.collectives import algorithms
from simdist.collectives.registry import Algorithm, find
from simdist.comm import Communicator
from simdist.trace import Span, Trace
from simdist.training.traffic import Call, last_step

__all__ = ["SharedMemoryBytes", "shared_memory_bytes"]


class SharedMemoryBytes(NamedTuple):
    """Bytes of one rank in the last step.

    Attributes:
        measured: read and written, on the record.
        predicted: by the algorithms' costs, in place or by way of copies, as the record shows it.
        by_messages: what an algorithm with messages would have sent instead, by its paper: the ring, where there is
            one.
    """

    measured: float
    predicted: float
    by_messages: float

    def row(self) -> tuple[str, str, str, str]:
        """As text for a report."""
        what = "bytes moved through shared memory a step, rank 0"
        return what, f"{self.measured:,.0f}", f"{self.predicted:,.0f}", f"by messages {self.by_messages:,.0f}"


def shared_memory_bytes(
    trace: Trace, step: Mapping[Call, int], comm: Communicator, itemsize: int
) -> SharedMemoryBytes | None:
    """The bytes of rank 0; None if it moved none.

    Args:
        itemsize: bytes an item of a gradient.
    """
    direct = {call: count for call, count in step.items() if not find(*call[:2]).by_messages}
    spans = [s for s in last_step(trace) if s.name == "move"]
    if not direct or not spans:
        return None
    by_messages = sum(_rival(call).formula(call.case(comm, itemsize)).bytes * n for call, n in direct.items())
    return SharedMemoryBytes(sum(s.bytes for s in spans), _predicted(trace, spans, direct, comm, itemsize), by_messages)


def _rival(call: Call) -> Algorithm:
    """The algorithm that would have done it with messages."""
    names = algorithms(call.operation)
    return find(call.operation, "ring" if "ring" in names else names[0])


def _predicted(trace: Trace, spans: list[Span], direct: Mapping[Call, int], comm: Communicator, itemsize: int) -> int:
    """By the algorithms' costs, in place or by way of copies, as the record shows."""
    total = 0
    for outer in last_step(trace):
        for call in direct:
            first = next((s for s in spans if _is_inside(s, outer)), None) if call.is_on(outer) else None
            if first is not None:
                cost = find(*call[:2]).cost(call.case(comm, itemsize), staged="posted" in first.detail)
                total += cost.read_bytes + cost.written_bytes
    return total


def _is_inside(s: Span, outer: Span) -> bool:
    """Whether it is a part of this collective, and not the end of the one before."""
    inside = outer.start_s <= s.start_s <= s.end_s <= outer.end_s
    return inside and s.stream == outer.stream and s.end_s > outer.start_s
