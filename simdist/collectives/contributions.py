"""Contributions: numbers that encode their place and their contributors.

Rank r's item at place i of an array starts as

    8**p * i + 8**r            p   ranks, up to 16

and sums can still be decoded: the low p digits in base 8 count the contributions of each rank, and the rest is i times
their number. So such a number can be read wherever it turns up, in the array, in a message or in working space.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np

from simdist.arrays import Array
from simdist.errors import ArgumentError
from simdist.trace import Span

__all__ = ["MOST_RANKS", "Code", "Contributors", "Pieces", "State", "states"]

MOST_RANKS = 16
"""How many ranks can be told apart in 64 bits."""

Contributors: TypeAlias = tuple[int, ...]
"""The ranks that have gone into a number, in order; one that has gone in twice is named twice."""

Pieces: TypeAlias = tuple[Contributors, ...]
"""Numbers of the same place that have not been added up, or never will be."""


class State(NamedTuple):
    """What a rank holds at one moment.

    Attributes:
        rank: whose state it is.
        step: how many steps are over.
        holds: for each place of the array the pieces that are there; one that is part of another is left out.
        takes: (from whom, which places) of the message that has just come, if one has.
        goal: for each place the pieces that its final value is made of: one sum of all, or rows side by side.
        title: operation and algorithm.
    """

    rank: int
    step: int
    holds: tuple[Pieces, ...]
    takes: tuple[tuple[int, tuple[int, ...]], ...]
    goal: tuple[Pieces, ...]
    title: str

    def detail(self) -> str:
        """As JSON, for a span's detail."""
        return json.dumps([self.holds, self.takes, self.goal, self.title], separators=(",", ":"))

    @classmethod
    def of(cls, span: Span) -> "State":
        """Read from the span that carries it."""
        holds, takes, goal, title = json.loads(span.detail)
        held, wanted = (tuple(tuple(map(tuple, pieces)) for pieces in places) for places in (holds, goal))
        taken = tuple((int(src), tuple(places)) for src, places in takes)
        return cls(span.rank, round(span.start_s), held, taken, wanted, title)


def states(spans: Iterable[Span]) -> list[State]:
    """All states on a record, in the order of steps and ranks.

    Raises:
        ArgumentError: there are none.
    """
    found = [State.of(s) for s in spans if s.name == "state"]
    if not found:
        raise ArgumentError("this record has no states; `watched` makes one that has")
    return sorted(found, key=lambda s: (s.step, s.rank))


class Code:
    """Numbers that tell their place and their contributors.

    Args:
        ranks: how many contribute, p.
        places: how many places the array has.
    """

    def __init__(self, ranks: int, places: int) -> None:
        self.ranks, self.places = ranks, places
        self._base = 8**ranks

    def of(self, rank: int) -> Array:
        """What `rank` puts in: int64, shape (places,)."""
        return self._base * np.arange(self.places, dtype=np.int64) + 8**rank

    def read(self, values: Array) -> list[tuple[int, Contributors]]:
        """The (place, contributors) of each of these numbers; values that this code did not make are left out."""
        if values.dtype != np.int64:  # such as a barrier's messages
            return []
        digits = values[:, None] % self._base // 8 ** np.arange(self.ranks) % 8
        number = digits.sum(axis=1)
        place, rest = np.divmod(values // self._base, np.maximum(number, 1))
        good = (values > 0) & (number > 0) & (rest == 0) & (place < self.places)
        ranks = np.arange(self.ranks)
        return [(int(i), tuple(np.repeat(ranks, d).tolist())) for i, d in zip(place[good], digits[good], strict=True)]

    def holdings(self, arrays: Iterable[Array]) -> tuple[Pieces, ...]:
        """The pieces of each place that these arrays hold."""
        found: list[set[Contributors]] = [set() for _ in range(self.places)]
        for values in arrays:
            for place, who in self.read(values):
                found[place].add(who)
        return tuple(tuple(sorted(_largest(pieces))) for pieces in found)


def _largest(pieces: set[Contributors]) -> set[Contributors]:
    """Those that are not part of another."""
    counts = {piece: Counter(piece) for piece in pieces}
    return {a for a in pieces if not any(a != b and counts[a] <= counts[b] for b in pieces)}
