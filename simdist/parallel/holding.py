"""Holding: the stretches of a model's flat vector that a rank holds, end to end in the rank's own vector."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from simdist.arrays import Array, consecutive
from simdist.errors import ArgumentError

__all__ = ["Holding", "Shard"]


class Shard(NamedTuple):
    """A stretch of a flat vector with the layout of a model's parameters.

    Attributes:
        start: where it begins in the whole vector.
        data: shape (n,); items start … start+n-1.
    """

    start: int
    data: Array


class Holding:
    """Stretches of a whole vector, and their places in a rank's own vector.

        whole     |-----##----------|--------###-----------|-###--|
        own       ##|###|###                                          size 8
        own       ##..|###.|###.                                      with rooms 4, 4 and 4: size 12

    Args:
        stretches: slices of the whole vector, in order, apart from each other; some may be empty.
        rooms: the items of the own vector that each stretch gets: at least its length, which is the default. The
            rest of a room is padding with zeros, for callers that need stretches of equal length.

    Attributes:
        stretches: as given.
        places: each one's slice of the own vector.
        rooms: the same with its padding.
        size: of the own vector.

    Raises:
        ArgumentError: stretches are out of order or overlap, or a room is missing or too short.
    """

    def __init__(self, stretches: Iterable[slice], rooms: Sequence[int] | None = None) -> None:
        self.stretches = tuple(stretches)
        lengths = [s.stop - s.start for s in self.stretches]
        if any(n < 0 for n in lengths) or any(a.stop > b.start for a, b in pairwise(self.stretches)):
            raise ArgumentError(f"stretches {self.stretches} are not in order, or overlap")
        sizes = lengths if rooms is None else list(rooms)
        if len(sizes) != len(lengths) or any(room < n for room, n in zip(sizes, lengths, strict=True)):
            raise ArgumentError(f"rooms {sizes} for stretches of {lengths} items; needs one each, at least as long")
        self.rooms = consecutive(sizes)
        self.places = tuple(slice(room.start, room.start + n) for room, n in zip(self.rooms, lengths, strict=True))
        self.size = sum(sizes)

    @classmethod
    def of_all(cls, size: int) -> "Holding":
        """All of a vector."""
        return cls([slice(0, size)])

    def own(self, span: slice) -> slice:
        """The slice of the own vector with the items of whole[span] that are held, including padding between them.

        If none are held, it is the empty slice between the items held before the span and those held after it.
        """
        return slice(self._first_from(span.start), self._first_from(span.stop))

    def _first_from(self, item: int) -> int:
        """The index in the own vector of the first held item of whole[item:], or its end if there is none."""
        for stretch, place in zip(self.stretches, self.places, strict=True):
            if item < stretch.stop:
                return int(place.start) + max(item - int(stretch.start), 0)
        return self.size

    def shards(self, own: Array) -> list[Shard]:
        """A vector of this holding's size as shards of the whole vector; they are views."""
        return [Shard(stretch.start, own[place]) for stretch, place in zip(self.stretches, self.places, strict=True)]
