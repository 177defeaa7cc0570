"""Late: when a rank waited for others that had not arrived yet."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from simdist.trace.kind import MESSAGES
from simdist.trace.match import match
from simdist.trace.span import Span

__all__ = ["Interval", "late"]

Interval: TypeAlias = tuple[float, float]


def late(spans: Sequence[Span]) -> dict[int, Interval]:
    """By the index of a message or a direct collective: the interval in which it waited for late ranks.

    A receive waits until the send has begun, and a send that blocks until the receive has begun. A direct collective
    begins without messages: all ranks of a node meet in shared memory, so it cannot proceed before the last arrives.
    """
    return dict([*_messages(spans), *_meetings(spans)])


def _messages(spans: Sequence[Span]) -> Iterator[tuple[int, Interval]]:
    for i, j in match(spans):
        send, recv = spans[i], spans[j]
        if recv.start_s < send.start_s:
            yield j, (recv.start_s, min(recv.end_s, send.start_s))
        elif send.start_s < recv.start_s < send.end_s:  # otherwise the send did not wait
            yield i, (send.start_s, recv.start_s)


def _meetings(spans: Sequence[Span]) -> Iterator[tuple[int, Interval]]:
    """The k-th direct collectives of a communicator's ranks belong together; over several nodes, those of each node."""
    inside: dict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)
    direct: list[int] = []
    for i, s in enumerate(spans):
        if s.name in (*MESSAGES, "move"):
            inside[s.rank, s.stream].append((s.start_s, i))
        elif s.name.endswith(" direct"):
            direct.append(i)
    for starts in inside.values():
        starts.sort()

    def first(s: Span) -> Span | None:
        """The first message or move of a collective."""
        starts = inside[s.rank, s.stream]
        k = bisect_left(starts, (s.start_s, -1))
        return spans[starts[k][1]] if k < len(starts) and starts[k][0] <= s.end_s else None

    count: dict[tuple[int, str, str], int] = defaultdict(int)
    calls: dict[tuple[str, str, int, str], list[int]] = defaultdict(list)
    for i in sorted(direct, key=lambda i: spans[i].start_s):
        s = spans[i]
        count[s.rank, s.name, s.detail] += 1
        begun = first(s)
        if begun is None or begun.name == "move":  # otherwise its messages show the waiting
            group = begun.context if begun else ""
            calls[s.name, s.detail, count[s.rank, s.name, s.detail], group].append(i)
    for together in calls.values():
        last_s = max(spans[i].start_s for i in together)
        early = [i for i in together if spans[i].start_s < last_s]
        yield from ((i, (spans[i].start_s, min(spans[i].end_s, last_s))) for i in early)
