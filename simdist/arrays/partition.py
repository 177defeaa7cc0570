"""Partition: n items over p ranks, in slices as equal as possible."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from numbers import Integral
from typing import Protocol

from simdist.errors import ArgumentError

__all__ = ["Chunks", "Partition", "consecutive", "partition", "slices"]


class Chunks(Protocol):
    """Consecutive slices, one per rank: a Partition, or a list of slices of any lengths."""

    def __getitem__(self, i: int, /) -> slice: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Partition:
    """The slices that cut `range(n)` into `p` runs; only a few numbers are stored.

    The first n mod p runs have one item more than the others, so sizes differ by one at most. With
    n < p the last runs are empty.

        partition(10, 4):   [0 1 2] [3 4 5] [6 7] [8 9]
    """

    n: int
    p: int
    _base: int = field(init=False, repr=False, compare=False)
    _longer: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.n, Integral) and isinstance(self.p, Integral) and self.n >= 0 and self.p >= 1):
            raise ArgumentError(f"cannot cut {self.n} items into {self.p} parts: needs whole n >= 0 and p >= 1")
        object.__setattr__(self, "_base", self.n // self.p)
        object.__setattr__(self, "_longer", self.n % self.p)

    def start(self, i: int) -> int:
        """The start of run i, for 0 <= i <= p."""
        return i * self._base + (i if i < self._longer else self._longer)

    def size(self, i: int) -> int:
        """The number of items in run i."""
        return self._base + (i < self._longer)

    def span(self, first: int, last: int) -> slice:
        """Runs first … last-1 as one slice."""
        return slice(self.start(first), self.start(last))

    @property
    def largest(self) -> int:
        """The size of the largest run."""
        return self._base + (self._longer > 0)

    def __getitem__(self, i: int) -> slice:
        if not 0 <= i < self.p:
            raise IndexError(f"run {i} of a partition into {self.p}")
        longer = self._longer
        if i < longer:
            start = i * (self._base + 1)
            return slice(start, start + self._base + 1)
        start = i * self._base + longer
        return slice(start, start + self._base)

    def __len__(self) -> int:
        return self.p

    def __iter__(self) -> Iterator[slice]:
        return (self[i] for i in range(self.p))


@lru_cache(maxsize=256)
def partition(n: int, p: int) -> Partition:
    """Cut n items into p slices as equal as possible: `partition(n, p)[i]` is the slice of rank i."""
    return Partition(n, p)


@lru_cache(maxsize=16)
def slices(n: int, p: int) -> tuple[slice, ...]:
    """All slices of `partition(n, p)`, to iterate over; shared by the ranks of one process."""
    return tuple(partition(n, p))


def consecutive(lengths: Iterable[int]) -> tuple[slice, ...]:
    """Slices of these lengths, one after the other."""
    return tuple(slice(*ends) for ends in pairwise([0, *accumulate(lengths)]))
