"""Match: which receive took which send."""

from collections import defaultdict
from collections.abc import Sequence

from simdist.trace.span import Span

__all__ = ["match"]


def match(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Pairs (index of a send, index of the receive that took it), in the order of the sends.

    Messages between two ranks with the same context and tag do not overtake each other, so the k-th send
    from a to b belongs to the k-th receive by b from a. A message without its other half (a record cut off
    by an error) is left out.
    """
    channels: dict[tuple[int, int, str, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i, s in enumerate(spans):
        if s.name == "send":
            channels[s.rank, s.peer, s.context, s.tag][0].append(i)
        elif s.name == "recv":
            channels[s.peer, s.rank, s.context, s.tag][1].append(i)

    def begun(i: int) -> tuple[float, float]:
        return spans[i].start_s, spans[i].end_s  # of those begun at one moment the first to end was the first asked for

    pairs: list[tuple[int, int]] = []
    for sends, receives in channels.values():
        pairs += zip(sorted(sends, key=begun), sorted(receives, key=begun), strict=False)
    return sorted(pairs)
