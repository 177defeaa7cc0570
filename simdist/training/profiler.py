"""Profiler: what training steps cost, read from the record."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import add, sub
from typing import NamedTuple

from simdist.arrays import Meter, metered
from simdist.comm import Communicator
from simdist.parallel.pipeline.text import is_action
from simdist.trace import Span
from simdist.trace.kind import COMMUNICATING, MESSAGES, kind

__all__ = ["STEP", "Profiler", "Tally", "covered_s"]

STEP = "step"
"""The span around a training step."""


class Tally(NamedTuple):
    """What some steps cost this rank.

    Attributes:
        steps, seconds: how many, and the time inside them.
        targets: how many bytes all ranks together have predicted in them.
        communication_s: the part of the time in which the main stream communicated, or waited for another stream;
            without what overlapped with a pipeline's actions.
        messages, sent_bytes: what this rank sent, on any stream.
        flops: floating-point operations.
    """

    steps: int = 0
    seconds: float = 0.0
    targets: int = 0
    communication_s: float = 0.0
    messages: int = 0
    sent_bytes: int = 0
    flops: int = 0

    @property
    def communication_share(self) -> float:
        """As a share of the time inside steps, between 0 and 1."""
        return self.communication_s / self.seconds if self.seconds else 0.0

    def per_second(self, count: float) -> float:
        """The rate of something that happened this often; 0 if no time passed."""
        return count / self.seconds if self.seconds else 0.0


class Profiler:
    """Adds up this rank's steps, and keeps the record from growing without bound.

    Args:
        comm: whose clock and record to read.
        keep_steps: of how many of the last steps the record is kept; earlier ones are counted, then dropped.
        first: the first row of the record that it may drop; by default, the next.

    Attributes:
        total: what all steps so far cost.
    """

    def __init__(self, comm: Communicator, keep_steps: int, first: int | None = None) -> None:
        self.total = Tally()
        self._last = Tally()
        self._comm = comm
        self._rows = comm.recorder.rows
        self._keep_steps = keep_steps
        self._first = len(self._rows) if first is None else first
        self._begins: list[int] = []  # where the rows of each kept step begin, counted from _first

    @contextmanager
    def step(self, number: int, targets: int = 0) -> Iterator[None]:
        """Measure what happens inside this block as one training step on this many targets, and record it."""
        comm, meter, begin = self._comm, Meter(), len(self._rows)
        start_s = comm.clock()
        with comm.span(STEP, detail=str(number)), metered(meter):
            yield
            comm.device.synchronize()
        seconds, spans = comm.clock() - start_s, [Span._make(row) for row in self._rows[begin:]]
        communication_s = _communication_s(s for s in spans if s.stream == comm.stream_name)
        sent = [s.bytes for s in spans if s.name == "send"]
        step = Tally(1, seconds, targets, communication_s, len(sent), sum(sent), meter.flops)
        self.total = Tally._make(map(add, self.total, step))
        self._begins.append(begin - self._first)
        self._drop()

    def lap(self) -> Tally:
        """The cost of the steps since the last lap."""
        then, self._last = self._last, self.total
        return Tally._make(map(sub, self.total, then))

    def _drop(self) -> None:
        """Drop the oldest steps beyond those to keep, and all that is before and between them."""
        surplus = len(self._begins) - self._keep_steps
        if surplus > 0:
            end = self._begins[surplus] if surplus < len(self._begins) else len(self._rows) - self._first
            del self._rows[self._first : self._first + end]
            self._begins = [begin - end for begin in self._begins[surplus:]]


def _communication_s(spans: Iterable[Span]) -> float:
    """The time in which there is a collective or a wait, or a message while no action of a pipeline runs."""
    around, messages, actions = (list[tuple[float, float]]() for _ in range(3))
    for s in spans:
        if is_action(s.name):
            actions.append((s.start_s, s.end_s))
        elif kind(s.name) in COMMUNICATING:
            (messages if kind(s.name) in MESSAGES else around).append((s.start_s, s.end_s))
    # With C, M and A for the three: |C or (M without A)| = |C or M or A| - |A without C|.
    in_actions_s = covered_s([*actions, *around]) - covered_s(around)
    return covered_s([*around, *messages, *actions]) - in_actions_s


def covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of these intervals (start, end)."""
    seconds, until_s = 0.0, float("-inf")
    for start_s, end_s in sorted(intervals):
        if end_s > until_s:
            seconds += end_s - max(start_s, until_s)
            until_s = end_s
    return seconds
