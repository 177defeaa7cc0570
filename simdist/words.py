"""Words: counts and ranks, as all messages write them."""

from collections.abc import Iterable

__all__ = ["counted", "listed"]

_MOST = 12


def counted(count: int, noun: str) -> str:
    """A count and its noun: 1 message, 2,000 messages."""
    return f"{count:,} {noun}{'' if count == 1 else 'es' if noun.endswith(('s', 'ch', 'sh')) else 's'}"


def listed(ranks: Iterable[int]) -> str:
    """'rank 3', 'ranks 0, 2', or the first few of many."""
    every = sorted(ranks)
    shown = ", ".join(map(str, every[:_MOST]))
    if len(every) > _MOST:
        shown += f", … ({len(every)} in all)"
    return ("rank " if len(every) == 1 else "ranks ") + shown
