"""Mismatch: the error for ranks that call different collectives."""

from collections.abc import Iterable

from simdist.errors import CollectiveMismatch

__all__ = ["listed", "mismatch"]

_MOST = 12


def listed(ranks: Iterable[int]) -> str:
    """'rank 3', 'ranks 0, 2', or the first few of many."""
    every = sorted(ranks)
    shown = ", ".join(map(str, every[:_MOST]))
    if len(every) > _MOST:
        shown += f", … ({len(every)} in all)"
    return ("rank " if len(every) == 1 else "ranks ") + shown


def mismatch(context: str, said: Iterable[str]) -> CollectiveMismatch:
    """The error for ranks that disagree: it lists each call with its ranks, the most common call first.

    Args:
        context: the name of their communicator.
        said: the call of each rank.
    """
    groups: dict[str, list[int]] = {}
    for rank, what in enumerate(said):
        groups.setdefault(what, []).append(rank)
    rows = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1]))
    text = "\n".join(f"  {listed(ranks)}: {what}" for what, ranks in rows)
    return CollectiveMismatch(f"the ranks of {context!r} call different collectives:\n{text}")
