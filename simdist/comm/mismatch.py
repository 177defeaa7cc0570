"""Mismatch: the error for ranks that call different collectives."""

from collections.abc import Iterable

from simdist.errors import CollectiveMismatch
from simdist.words import listed

__all__ = ["mismatch"]


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
