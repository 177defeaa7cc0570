"""Layout: where each span is drawn, so that none hides another."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from simdist.trace.kind import MESSAGES
from simdist.trace.span import Span

__all__ = ["Lanes", "Layout", "nanoseconds"]


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds: the resolution of drawn time, in which adjacent spans touch exactly."""
    return round(seconds * 1e9)


class Lanes:
    """Lanes for spans that may overlap, `count` of them so far: each span gets the first that is free, from 0 on."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []
        self._busy: list[tuple[float, int]] = []  # (until when, lane), soonest first

    def take(self, start: float, end: float) -> int:
        """The lane of the next span, in the order of starts."""
        while self._busy and self._busy[0][0] <= start:
            heappush(self._free, heappop(self._busy)[1])
        if not self._free:
            self._free.append(self.count)
            self.count += 1
        lane = heappop(self._free)
        heappush(self._busy, (end, lane))
        return lane


@dataclass(frozen=True, slots=True)
class Layout:
    """The lane of every span, and whether it is a frame; the lists are indexed like the record.

    A stream's operations nest, on its lane 0. A message is on lane 0 too if it fits between their starts and ends.
    Messages in flight at the same time go to further lanes, each to the first that is free:

        lane 0    [ all_reduce .................. ]
                    [ send ]    [ send ]   [ recv ]
        lane 1      [ recv  ]   [ recv   ]

    Attributes:
        lane: 0 for operations; spans on a lane overlap only if one encloses the other.
        encloses: whether it contains other spans.
    """

    lane: list[int]
    encloses: list[bool]

    @classmethod
    def of(cls, spans: Sequence[Span]) -> "Layout":
        """Lay out a record. Of two spans with equal start and end the later one is outer, as it was recorded last."""
        layout = cls([0] * len(spans), [False] * len(spans))
        streams: dict[tuple[int, str], list[int]] = defaultdict(list)
        for i, s in enumerate(spans):
            streams[s.rank, s.stream].append(i)
        for indices in streams.values():
            layout._place(spans, indices)
        return layout

    def _place(self, spans: Sequence[Span], indices: list[int]) -> None:
        """Lay out one stream."""
        start = {i: nanoseconds(spans[i].start_s) for i in indices}
        end = {i: nanoseconds(spans[i].end_s) for i in indices}
        operations: list[int] = []
        flying: list[int] = []
        for i in indices:
            (flying if spans[i].name in MESSAGES else operations).append(i)
        operations.sort(key=lambda i: (start[i], -end[i], spans[i].start_s, -spans[i].end_s, -i))
        stays, strays = self._nest(operations, start, end)
        flying = sorted(flying + strays, key=lambda i: (start[i], spans[i].name != "send", end[i]))
        self._fly(flying, stays, start, end)

    def _nest(
        self, operations: list[int], start: dict[int, int], end: dict[int, int]
    ) -> tuple[dict[int, int | None], list[int]]:
        """The operations that nest on lane 0, each with the one around it, and those that do not nest."""
        stays: dict[int, int | None] = {}
        strays: list[int] = []
        open_: list[int] = []
        for i in operations:
            while open_ and end[open_[-1]] <= start[i]:
                open_.pop()
            outer = open_[-1] if open_ else None
            if outer is not None and end[i] > end[outer]:
                strays.append(i)
                continue
            if outer is not None:
                self.encloses[outer] = True
            open_.append(i)
            stays[i] = outer
        return stays, strays

    def _fly(self, flying: list[int], stays: dict[int, int | None], start: dict[int, int], end: dict[int, int]) -> None:
        """Give each of these spans, in the order of their starts, the first lane on which it overlaps nothing."""
        begun = list(stays)
        starts = [start[i] for i in begun]
        marks = sorted([*starts, *(end[i] for i in begun)])
        lanes, free_at_0 = Lanes(), 0
        for i in flying:
            k = bisect_right(starts, start[i])
            outer = begun[k - 1] if k else None
            while outer is not None and (end[outer] <= start[i] or end[outer] < end[i]):
                outer = stays[outer]
            if outer is not None:
                self.encloses[outer] = True
            if free_at_0 <= start[i] and bisect_right(marks, start[i]) >= bisect_left(marks, end[i]):
                free_at_0 = end[i]
                continue
            self.lane[i] = 1 + lanes.take(start[i], end[i])
