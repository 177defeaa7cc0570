r"""Binomial: parents and children in the tree that doubles its reach with every round.

    p   ranks            root    the rank that it grows from
    r   this rank        place   how far a rank stands behind the root, round the ring: (r - root) mod p

The parent of a place is that number with its lowest set bit cleared. So the parent of 6 = 110 is 4 = 100, and a place
with k trailing zeros has up to k children, each with one of those bits set.

    place         0                        0 = 000
              ____|____
             |    |    |
             4    2    1                   4 = 100    2 = 010    1 = 001
            / \   |
           6   5  3                        6 = 110    5 = 101    3 = 011
           |
           7                               7 = 111

The subtree of a place consists of consecutive numbers, its own first. Where p is not a power of two, those from p on
are missing, and nothing else changes.
"""

from collections.abc import Callable
from typing import NamedTuple

from simdist.arrays import Chunks

__all__ = ["Binomial", "Branch"]


class Branch(NamedTuple):
    """A rank and its subtree: the places from first, its own, to end - 1."""

    rank: int
    first: int
    end: int


class Binomial:
    """A rank's place in the binomial tree.

    Attributes:
        branch: this rank with its subtree.
        parent: its parent's rank; None at the root.
        children: the branches of its children, the largest first.
    """

    def __init__(self, ranks: int, rank: int, root: int = 0) -> None:
        self.ranks, self.root = ranks, root
        place = (rank - root) % ranks
        reach = place & -place if place else 1 << self.rounds(ranks)
        self.branch = self._branch(place, reach)
        self.parent = self._rank(place - reach) if place else None
        distances = [reach >> k for k in range(1, reach.bit_length())]
        self.children = [self._branch(place + d, d) for d in distances if place + d < ranks]

    @staticmethod
    def rounds(ranks: int) -> int:
        """ceil(lg p): in each round every rank that has the array can pass it to one more."""
        return (ranks - 1).bit_length()

    def layout(self, chunks: Chunks) -> Callable[[Branch], slice]:
        """Where the chunks of a branch lie in the block of all chunks of this rank's own branch.

        In a block chunks lie in the order of places, without gaps: it begins with this rank's own.
        """
        p, root = self.ranks, self.root
        length: int = chunks[p - 1].stop

        def start(place: int) -> int:  # in an array in which root's chunk stays where it is and nothing wraps round
            rank = root + place
            begin: int = chunks[rank % p].start
            return begin if rank < p else begin + length

        mine = start(self.branch.first)
        return lambda branch: slice(start(branch.first) - mine, start(branch.end) - mine)

    def _branch(self, place: int, reach: int) -> Branch:
        return Branch(self._rank(place), place, min(place + reach, self.ranks))

    def _rank(self, place: int) -> int:
        return (self.root + place) % self.ranks
