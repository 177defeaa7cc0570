"""Match: which receive took which send."""

from collections import defaultdict
from collections.abc import Sequence

from simdist.trace.span import Span

__all__ = ["match"]


def match(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Pairs (index of a send, index of the receive that took it), in the order of the sends.

    Messages between two ranks with the same context and tag do not overtake each other, so the k-th send from a to b
    matches the k-th receive by b from a. Among sends begun at the same moment the number of bytes decides, since a
    large one may end after a small one that was posted later. A message without its other half (in a record cut off
    by an error) is left out.
    """
    channels: dict[tuple[int, int, str, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i, s in enumerate(spans):
        if s.name == "send":
            channels[s.rank, s.peer, s.context, s.tag][0].append(i)
        elif s.name == "recv":
            channels[s.peer, s.rank, s.context, s.tag][1].append(i)

    def begun(i: int) -> tuple[float, float]:
        # Of those begun at the same moment, the first to end usually was posted first.
        return spans[i].start_s, spans[i].end_s

    pairs: list[tuple[int, int]] = []
    for sends, receives in channels.values():
        sends.sort(key=begun)
        receives.sort(key=begun)
        for k, j in enumerate(receives[: len(sends)]):
            first = _first(spans, sends, k, spans[j].bytes)
            if first > k:
                sends.insert(k, sends.pop(first))
            pairs.append((sends[k], j))
    return sorted(pairs)


def _first(spans: Sequence[Span], sends: Sequence[int], k: int, num_bytes: int) -> int:
    """The index of the first send of this many bytes from k on, among those begun at the same moment; k if none."""
    start_s = spans[sends[k]].start_s
    for m in range(k, len(sends)):
        send = spans[sends[m]]
        if send.start_s != start_s:
            break
        if send.bytes == num_bytes:
            return m
    return k
