"""Activity: when a stream computes, communicates and waits, from spans that nest and overlap."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from simdist.arrays import Array
from simdist.trace.kind import COLLECTIVES, COMPUTING, MESSAGES, kind
from simdist.trace.late import Interval, late
from simdist.trace.layout import Layout
from simdist.trace.span import Span

__all__ = ["Activity", "activities", "covered"]


def covered(intervals: Sequence[Interval], t: Array) -> Array:
    """Whether each stretch t[i] to t[i+1] is inside one of the intervals.

    Args:
        t: float64, shape (n,), ascending; contains both ends of every interval.

    Returns:
        bool, shape (n-1,), or (0,) if n is 0.
    """
    if not intervals or len(t) < 2:
        return np.zeros(max(0, len(t) - 1), dtype=bool)
    ends = np.searchsorted(t, np.array(intervals, dtype=np.float64))
    opened, closed = (np.bincount(ends[:, i], minlength=len(t)) for i in (0, 1))
    return np.cumsum(opened - closed)[:-1] > 0


class Activity:
    """The intervals in which one stream communicates, computes and waits.

    It communicates inside a collective, including its reductions, while a message is in flight without overlapping
    computation, and while it blocks on another stream: a forward that waits for parameters does not compute. It waits
    while other ranks are late. Reading and writing files counts as neither.
    """

    __slots__ = ("collectives", "computing", "late", "messages", "waits")

    def __init__(self) -> None:
        self.messages: list[Interval] = []
        self.collectives: list[Interval] = []
        self.computing: list[Interval] = []
        self.waits: list[Interval] = []
        self.late: list[Interval] = []

    def add(self, span: Span, encloses: bool, waited: Interval | None) -> None:
        """Include a span.

        Args:
            encloses: whether it contains other spans: if its kind is "other", it is then only a frame.
            waited: when it waited for ranks that had not arrived.
        """
        what, interval = kind(span.name), (span.start_s, span.end_s)
        if what in MESSAGES:
            self.messages.append(interval)
        elif what in COLLECTIVES or what == "move":
            self.collectives.append(interval)
        elif what == "wait":
            self.waits.append(interval)
        elif what in COMPUTING or (what != "disk" and not encloses):
            self.computing.append(interval)
        if waited is not None:
            self.late.append(waited)

    def marks(self) -> list[float]:
        """All moments at which an interval begins or ends."""
        return [mark for name in self.__slots__ for interval in getattr(self, name) for mark in interval]

    def between(self, start_s: float, end_s: float) -> "Activity":
        """The part of it within this time."""
        part = Activity()
        for name in self.__slots__:
            inside = [(max(a, start_s), min(b, end_s)) for a, b in getattr(self, name) if a < end_s and b > start_s]
            setattr(part, name, inside)
        return part

    def split(self, t: Array) -> tuple[Array, Array, Array]:
        """In which stretches of t it computes, in which it communicates or waits, and in which it waits.

        Args:
            t: float64, ascending; contains all `marks`.
        """
        around, waiting = covered(self.collectives + self.waits, t), covered(self.late, t)
        computing = covered(self.computing, t) & ~around
        communicating = (around | covered(self.messages, t)) & ~computing
        return computing, communicating, waiting & ~computing


def activities(spans: Sequence[Span]) -> dict[tuple[int, str], Activity]:
    """The activity of every (rank, stream) with spans in a record."""
    encloses, waited = Layout.of(spans).encloses, late(spans)
    found: dict[tuple[int, str], Activity] = defaultdict(Activity)
    for i, s in enumerate(spans):
        if kind(s.name) != "state":
            found[s.rank, s.stream].add(s, encloses[i], waited.get(i))
    return dict(found)
