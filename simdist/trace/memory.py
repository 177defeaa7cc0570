"""Memory: a ledger's moments on the record, to compare the use of memory with the activity."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from simdist.arrays import Moment
from simdist.trace.recorder import Recorder
from simdist.trace.span import Span

__all__ = ["MEMORY", "remember", "remembered", "within"]

MEMORY = "state memory"
"""The name of a span that is a moment of a ledger: its duration is zero, and its bytes are those alive."""


def remember(moments: Iterable[Moment], recorder: Recorder) -> None:
    """Add the moments of this rank's ledger, whose clock is the communicator's, to its record."""
    for m in moments:
        recorder.add("states", MEMORY, m.time_s, m.time_s, m.total, detail=json.dumps([m.at, *m.live]))


def remembered(spans: Iterable[Span]) -> dict[int, list[Moment]]:
    """By rank, the moments in a record, in the order of time."""
    found: dict[int, list[Moment]] = defaultdict(list)
    for s in spans:
        if s.name == MEMORY:
            at, *live = json.loads(s.detail)
            found[s.rank].append(Moment(s.start_s, tuple(live), at))
    return {rank: sorted(found[rank], key=lambda m: m.time_s) for rank in sorted(found)}


def within(moments: Sequence[Moment], start_s: float, end_s: float) -> list[Moment]:
    """The moments from start_s to end_s, and before them the one that tells what was alive when this time began."""
    found = [m for m in moments if start_s <= m.time_s <= end_s]
    known = bool(found) and found[0].time_s == start_s
    return found if known else [m for m in moments if m.time_s < start_s][-1:] + found
