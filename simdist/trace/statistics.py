"""Statistics: how each rank spent its time, and what it sent and received."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simdist.arrays import Array
from simdist.trace.activity import Activity, activities, covered
from simdist.trace.kind import kind
from simdist.trace.span import Span

__all__ = ["RankStatistics", "Shares", "Total", "hidden_share", "shares", "statistics", "traffic"]


class Total(NamedTuple):
    """The sums over all spans of one name; overlapping spans are counted separately."""

    num_spans: int = 0
    seconds: float = 0.0
    num_bytes: int = 0


class Shares(NamedTuple):
    """How all streams of a rank together spend their time.

    Attributes:
        computing_s: some stream computes.
        communicating_s: some stream communicates or waits, and none computes.
        waiting_s: the part of communicating_s spent waiting for other ranks: see simdist.trace.late.
        hidden_s: overlap: a stream computes while another communicates, or while its own message is in flight.
        hidden_share: by stream other than "main": the share of its communication that overlaps with
            computation on "main", from 0 to 1.
    """

    computing_s: float
    communicating_s: float
    waiting_s: float
    hidden_s: float
    hidden_share: dict[str, float]


@dataclass(frozen=True, slots=True)
class RankStatistics:
    """One rank's part in a run.

    Attributes:
        elapsed_s: from the first start on any rank to the last end: computing_s, communicating_s and other_s.
        computing_s, communicating_s, waiting_s, hidden_s, hidden_share: see `Shares`.
        operations: totals by the name of the span.
    """

    rank: int
    elapsed_s: float
    computing_s: float
    communicating_s: float
    waiting_s: float
    hidden_s: float
    hidden_share: Mapping[str, float]
    operations: Mapping[str, Total]

    @property
    def other_s(self) -> float:
        """It reads or writes files, or nothing is recorded."""
        return max(0.0, self.elapsed_s - self.computing_s - self.communicating_s)

    @property
    def sent(self) -> Total:
        """All messages sent."""
        return self.operations.get("send", Total())

    @property
    def received(self) -> Total:
        """All messages received."""
        return self.operations.get("recv", Total())


def statistics(spans: Sequence[Span], ranks: int) -> list[RankStatistics]:
    """The statistics of every rank, by rank."""
    streams: dict[int, dict[str, Activity]] = defaultdict(dict)
    for (rank, stream), activity in activities(spans).items():
        streams[rank][stream] = activity
    spent = [s for s in spans if kind(s.name) != "state"]
    named: dict[int, dict[str, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for s in spent:
        named[s.rank][s.name].append(s)
    elapsed_s = max((s.end_s for s in spent), default=0.0) - min((s.start_s for s in spent), default=0.0)
    return [RankStatistics(r, elapsed_s, *shares(streams[r]), _totals(named[r])) for r in range(ranks)]


def _totals(named: Mapping[str, Sequence[Span]]) -> dict[str, Total]:
    return {
        name: Total(len(spans), sum(s.seconds for s in spans), int(sum(s.bytes for s in spans)))
        for name, spans in named.items()
    }


def shares(streams: Mapping[str, Activity]) -> Shares:
    """How the streams of one rank, by name, spend their time together."""
    t = np.unique(np.array([mark for a in streams.values() for mark in a.marks()], dtype=np.float64))
    nothing = covered([], t)
    computing, communicating, waiting, beneath = nothing, nothing, nothing, nothing
    parts = {name: activity.split(t) for name, activity in streams.items()}
    for name, (computes, communicates, waits) in parts.items():
        computing, communicating, waiting = computing | computes, communicating | communicates, waiting | waits
        beneath = beneath | (computes & covered(streams[name].messages, t))

    def seconds(stretches: Array) -> float:
        return float(np.diff(t)[stretches].sum())

    main = parts["main"][0] if "main" in parts else nothing
    hidden_share = {
        name: seconds(communicates & main) / seconds(communicates)
        for name, (_, communicates, _) in parts.items()
        if name != "main" and seconds(communicates) > 0
    }
    hidden = beneath | (communicating & computing)
    exposed = communicating & ~computing
    return Shares(seconds(computing), seconds(exposed), seconds(waiting & exposed), seconds(hidden), hidden_share)


def hidden_share(spans: Iterable[Span], rank: int, stream: str = "communication") -> float:
    """The share of a second stream's communication that overlaps with computation on the main stream.

    Args:
        spans: a whole record: a Trace, or a list.

    Returns:
        From 0 (fully exposed) to 1 (fully hidden); 0 if the stream did not communicate.
    """
    own = {name: activity for (r, name), activity in activities(list(spans)).items() if r == rank}
    return shares(own).hidden_share.get(stream, 0.0)


def traffic(spans: Sequence[Span], ranks: int) -> Array:
    """The number of bytes sent, by sender and receiver: int64, shape (ranks, ranks)."""
    matrix = np.zeros((ranks, ranks), dtype=np.int64)
    for s in spans:
        if s.name == "send":
            matrix[s.rank, s.peer] += s.bytes
    return matrix
