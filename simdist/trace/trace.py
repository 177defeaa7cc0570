"""Trace: the record of a whole run."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from simdist.arrays import Array
from simdist.trace import chrome
from simdist.trace.match import match
from simdist.trace.span import Span
from simdist.trace.statistics import RankStatistics, statistics, traffic
from simdist.words import counted

__all__ = ["Trace"]


_start_s, _rank, _end_s = attrgetter("start_s"), attrgetter("rank"), attrgetter("end_s")


class Trace:
    """All spans of all ranks of a run, ordered by start; of those with equal start by rank, then the longest first.

    Attributes:
        spans: the record.
        ranks: the number of ranks that took part.
    """

    def __init__(self, spans: Iterable[Span], ranks: int) -> None:
        self.spans: list[Span] = sorted(spans, key=_end_s, reverse=True)
        self.spans.sort(key=_rank)
        self.spans.sort(key=_start_s)
        self.ranks = ranks

    def __repr__(self) -> str:
        return f"<trace of {counted(self.ranks, 'rank')}: {counted(len(self), 'span')}>"

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans)

    def __len__(self) -> int:
        return len(self.spans)

    def sends(self, rank: int | None = None) -> list[Span]:
        """The messages sent by a rank, or by all ranks, in the order of their start."""
        return [s for s in self.spans if s.name == "send" and rank in (None, s.rank)]

    def messages(self) -> list[tuple[Span, Span]]:
        """Each send with the receive that took it."""
        return [(self.spans[i], self.spans[j]) for i, j in match(self.spans)]

    def traffic(self) -> Array:
        """The number of bytes sent, by sender and receiver: int64, shape (ranks, ranks)."""
        return traffic(self.spans, self.ranks)

    def statistics(self) -> list[RankStatistics]:
        """How each rank spent its time, and what it sent and received."""
        return statistics(self.spans, self.ranks)

    def save(self, path: str | Path) -> None:
        """Write Chrome's trace format, as JSON: open it at ui.perfetto.dev or in chrome://tracing."""
        chrome.write(self.spans, self.ranks, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read back exactly what `save` wrote.

        Raises:
            DataError: it cannot be read, or is not a trace.
        """
        spans, ranks = chrome.read(Path(path))
        return cls(spans, ranks)

    def plot(self, **options: Any) -> Any:
        """The timeline as a Matplotlib Figure; the options are those of `simdist.plots.timeline`."""
        # By name, because plots is a higher layer: this is the one call to a higher layer.
        return import_module("simdist.plots").timeline(self, **options)
