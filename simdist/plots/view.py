"""View: which part of a trace a timeline shows, its layout, and notes about it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from simdist.errors import ArgumentError, require_kind, require_least, require_whole
from simdist.plots import style
from simdist.trace import Span, Trace
from simdist.trace.activity import Activity, activities
from simdist.trace.kind import kind
from simdist.trace.statistics import shares
from simdist.words import counted

__all__ = ["MARGIN", "Row", "View", "finding"]

MARGIN = 0.75
"""Inches left and right of the rows."""

_MOST_RANKS = 32

Row = tuple[int, str]
"""A rank and one of its streams."""


@dataclass
class View:
    """The part of a trace to draw.

    Attributes:
        trace: all of it.
        indices: of its spans in the shown ranks and the shown time.
        activity: of every row, in the shown time.
        rows: (rank, stream) -> the number of its row, from the top.
        notes: about what is left out.
    """

    trace: Trace
    indices: list[int]
    activity: dict[Row, Activity]
    rows: dict[Row, int]
    start_s: float
    end_s: float
    width: float
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, trace: Trace, ranks: Sequence[int] | None, start_s: float | None, end_s: float | None, width: float
    ) -> "View":
        """These ranks in this time; by default all of it, but at most 32 ranks.

        Raises:
            ArgumentError: there is no such rank, or nothing to show.
        """
        require_kind("trace", trace, Trace, "sd.run(…).trace")
        times = [(s.start_s, s.end_s) for s in trace if kind(s.name) != "state"]
        if not times:
            raise ArgumentError("this trace has no spans to draw")
        first_s, last_s = min(times)[0], max(end for _, end in times)
        start_s = first_s if start_s is None or start_s == -inf else start_s
        require_least("start_s", start_s, -inf)
        until = " on"
        if end_s is None or end_s == inf:
            end_s = max(last_s, start_s + 1e-9)
        else:
            require_least("end_s", end_s, -inf)
            until = f" to {end_s:.6g} s"
        if not first_s <= end_s > start_s <= last_s:
            asked = f"{start_s:.6g} s{until}"
            raise ArgumentError(f"nothing was recorded from {asked}, but from {first_s:.6g} s to {last_s:.6g} s")
        shown, notes = _ranks(trace, ranks)
        streams: dict[int, set[str]] = {rank: set() for rank in shown}
        indices = []
        for i, s in enumerate(trace.spans):
            if s.rank in streams and s.start_s <= end_s and s.end_s >= start_s and kind(s.name) != "state":
                indices.append(i)
                streams[s.rank].add(s.stream)
        rows = [(r, name) for r in shown for name in sorted(streams[r] or {"main"}, key=lambda n: (n != "main", n))]
        found = activities(trace.spans)
        activity = {row: found.get(row, Activity()).between(start_s, end_s) for row in rows}
        return cls(trace, indices, activity, {row: y for y, row in enumerate(rows)}, start_s, end_s, width, notes)

    @property
    def spans(self) -> list[Span]:
        """The shown spans, clipped to the shown time."""
        shown = (self.trace.spans[i] for i in self.indices)
        return [s._replace(start_s=max(s.start_s, self.start_s), end_s=min(s.end_s, self.end_s)) for s in shown]

    @property
    def unit(self) -> tuple[float, str]:
        """Seconds per unit of the time axis, and the unit's sign."""
        return style.unit_of_time(self.end_s - self.start_s)

    def x(self, seconds: float) -> float:
        """The place of a moment on the axis."""
        return (seconds - self.start_s) / self.unit[0]

    def points(self, span: Span) -> float:
        """The width of a span on paper."""
        return span.seconds / (self.end_s - self.start_s) * (self.width - MARGIN) * 72


def _ranks(trace: Trace, ranks: Sequence[int] | None) -> tuple[list[int], list[str]]:
    """The ranks to show, and a note about those left out."""
    if ranks is None and trace.ranks > _MOST_RANKS:
        evenly = [round(i * (trace.ranks - 1) / (_MOST_RANKS - 1)) for i in range(_MOST_RANKS)]
        return evenly, [f"{_MOST_RANKS} of {trace.ranks:,} ranks are shown, evenly spaced."]
    shown = list(range(trace.ranks) if ranks is None else dict.fromkeys(ranks))
    for rank in shown:
        require_whole("rank", rank, 0)
        if not 0 <= rank < trace.ranks:
            raise ArgumentError(f"rank {rank} is not one of ranks 0 to {trace.ranks - 1}")
    if not shown:
        raise ArgumentError("ranks is empty; give at least one")
    return shown, []


def finding(view: View) -> str:
    """The picture in a sentence."""
    streams: dict[int, dict[str, Activity]] = defaultdict(dict)
    for (rank, stream), activity in view.activity.items():
        streams[rank][stream] = activity
    every = [shares(one) for one in streams.values()]
    elapsed_s = len(every) * (view.end_s - view.start_s)
    who = counted(len(every), "rank")
    if len(every) < view.trace.ranks:
        who = f"{len(every)} of {counted(view.trace.ranks, 'rank')}"
    text = f"{who}, {style.seconds(view.end_s - view.start_s)}: "
    text += f"{sum(s.computing_s for s in every) / elapsed_s:.0%} of the time computing, "
    waiting = sum(s.waiting_s for s in every) / elapsed_s
    hidden = sum(s.hidden_s for s in every) / elapsed_s
    overlaps = hidden >= 0.005
    text += f"{sum(s.communicating_s for s in every) / elapsed_s:.0%} {'only ' if overlaps else ''}communicating"
    if waiting >= 0.005:
        text += f" ({waiting:.0%} waiting for a rank that was not there yet)"
    return text + (f"; both at once {hidden:.0%} of the time" if overlaps else "")
