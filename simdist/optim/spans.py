"""Spans: stretches of a flat vector, such as its layers or the weights that decay."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

from simdist.errors import ArgumentError

__all__ = ["Spans"]


class Spans:
    """Slices of a flat vector that do not overlap, in order.

        whole     |---- 0 ----|-- 1 --|      |----- 2 -----|
        shard              |==================|
        cut                |0 |-- 1 --|      |2|               counted from the start of the shard

    Args:
        spans: slices with a start, a stop and no step; they are sorted here.

    Raises:
        ArgumentError: a slice has a step or no valid ends, or two overlap.
    """

    def __init__(self, spans: Iterable[slice]) -> None:
        given = list(spans)
        for span in given:
            if None in (span.start, span.stop) or span.step not in (None, 1) or not 0 <= span.start <= span.stop:
                raise ArgumentError(f"{span} is no stretch of a vector; needs 0 <= start <= stop and no step")
        self._spans = sorted(given, key=lambda span: (span.start, span.stop))
        for before, after in pairwise(self._spans):
            if after.start < before.stop:
                raise ArgumentError(f"{before} and {after} overlap; a weight is in one span at most")
        self._stops = [span.stop for span in self._spans]

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[slice]:
        return iter(self._spans)

    def cut(self, start: int, stop: int) -> "Spans":
        """All spans cut to the shard start … stop, and counted from its start; some may be empty."""
        length = stop - start
        ends = [[min(max(i - start, 0), length) for i in (span.start, span.stop)] for span in self._spans]
        return Spans(slice(*pair) for pair in ends)

    def numbered(self, block: slice) -> list[tuple[slice, int]]:
        """The parts of spans inside `block`, counted from the block's start, each with the number of its span."""
        found = []
        for i in range(bisect_right(self._stops, block.start), len(self._spans)):
            span = self._spans[i]
            if span.start >= block.stop:
                break
            first, last = max(span.start, block.start), min(span.stop, block.stop)
            if first < last:
                found.append((slice(first - block.start, last - block.start), i))
        return found

    def within(self, block: slice) -> list[slice]:
        """The parts of spans inside `block`, counted from the block's start, without empty ones."""
        return [part for part, _ in self.numbered(block)]
