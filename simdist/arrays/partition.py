"""Partition: n items over p ranks, in runs as equal as can be."""

from collections.abc import Iterator
from dataclasses import dataclass

from simdist.errors import ArgumentError

__all__ = ["Partition", "partition"]


@dataclass(frozen=True, slots=True)
class Partition:
    """The slices that cut `range(n)` into `p` runs; nothing is stored but n and p.

    The first n mod p runs have one item more than the others, so sizes differ by one at most. With
    n < p the last runs are empty.

        partition(10, 4):   [0 1 2] [3 4 5] [6 7] [8 9]
    """

    n: int
    p: int

    def __post_init__(self) -> None:
        if self.n < 0 or self.p < 1:
            raise ArgumentError(f"cannot cut {self.n} items into {self.p} parts: needs n >= 0 and p >= 1")

    def start(self, i: int) -> int:
        """Where run i begins, for 0 <= i <= p."""
        base, longer = divmod(self.n, self.p)
        return i * base + (i if i < longer else longer)

    def size(self, i: int) -> int:
        """How many items run i has."""
        base, longer = divmod(self.n, self.p)
        return base + (i < longer)

    def span(self, first: int, last: int) -> slice:
        """Runs first … last-1 as one slice."""
        return slice(self.start(first), self.start(last))

    @property
    def largest(self) -> int:
        """The size of the largest run."""
        return -(-self.n // self.p)

    def __getitem__(self, i: int) -> slice:
        if not 0 <= i < self.p:
            raise IndexError(f"run {i} of a partition into {self.p}")
        base, longer = divmod(self.n, self.p)
        start = i * base + (i if i < longer else longer)
        return slice(start, start + base + (i < longer))

    def __len__(self) -> int:
        return self.p

    def __iter__(self) -> Iterator[slice]:
        return (self[i] for i in range(self.p))


def partition(n: int, p: int) -> Partition:
    """Cut n items into p runs as equal as can be: `partition(n, p)[i]` is the slice of rank i."""
    return Partition(n, p)
