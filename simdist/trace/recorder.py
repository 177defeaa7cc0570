"""Recorder: where one rank writes its spans as they happen."""

from typing import Any

from simdist.trace.span import Span

__all__ = ["Recorder"]


class Recorder:
    """The spans of one rank, in the order in which they ended.

    All of a rank's communicators and streams write to the same recorder. If `on` is false nothing is recorded.
    """

    __slots__ = ("on", "rank", "rows")

    def __init__(self, rank: int, on: bool = True) -> None:
        self.rank = rank
        self.on = on
        self.rows: list[tuple[Any, ...]] = []  # spans as bare tuples: a message costs one append

    def add(
        self,
        stream: str,
        name: str,
        start_s: float,
        end_s: float,
        num_bytes: int = 0,
        peer: int = -1,
        tag: int = 0,
        context: str = "",
        micro_batch: int = -1,
        detail: str = "",
    ) -> None:
        """Record one span; the arguments are Span's."""
        if self.on:
            self.rows.append(
                (self.rank, stream, name, start_s, end_s, num_bytes, peer, tag, context, micro_batch, detail)
            )

    def spans(self) -> list[Span]:
        """The spans recorded so far."""
        return [Span._make(row) for row in self.rows]
