r"""Two trees: two binary trees over the same ranks, such that the inner ranks of one are leaves of the other.

           tree 0: odd ranks inside             tree 1: even ranks inside
                      7                                    0
                     /                                    /
                    3                                    4
                 /     \                              /     \
                1       5                            2       6
               / \     / \                          / \     / \
              0   2   4   6                        1   3   5   7

In each tree a rank sits at a place from 1 to p: rank r at place r + 1 of tree 0 and at place r of tree 1, where rank 0
has place p. In-order traversal visits the places from left to right, and the odd ones are leaves. Let b be the lowest
set bit of place i: its parent is i + b or i - b, whichever has 2b as its lowest set bit: that of 5 = 101 is 6 = 110, of
6 it is 4 = 100, and of 4 it is 8 = 1000. Where i + b is beyond p, the parent is i - b; where that is 0, i is the root.

On the way up a rank sends at most two messages per segment, one in each tree, and receives at most two, from its
children in the only tree where it has any. Edges have two colours, one active in even steps, the other in odd ones: a
rank's two upward edges differ in colour, and so do those from its two children. So no rank sends twice or receives
twice in one step.

Source: Sanders, Speck, Träff 2009, Parallel Computing 35(12), 581-594: trees in order, one of them shifted by a
rank, and their edges in two colours.
"""

from functools import lru_cache
from itertools import product
from typing import NamedTuple

__all__ = ["Edge", "TwoTrees", "two_trees"]


class Edge(NamedTuple):
    """Between a rank's child and its parent: in which tree, which rank is at the other end, when it is first used."""

    tree: int
    peer: int
    first: int


class TwoTrees:
    """Parents and children in both trees, and when each edge is first used on the way up.

    Attributes:
        above[r]: the edges to r's parents, two at most.
        below[r]: the edges to r's children, two at most, and all in the same tree.
        fill: how many steps one segment needs to the roots, at most 2 ceil(lg p).
    """

    def __init__(self, ranks: int) -> None:
        self._parent = [[-1] * ranks, [-1] * ranks]
        self._children: list[list[list[int]]] = [[[] for _ in range(ranks)] for _ in range(2)]
        for t in range(2):
            for place in range(1, ranks + 1):
                parent_place = _parent_place(place, ranks)
                if parent_place > 0:
                    rank, parent = (place - 1 + t) % ranks, (parent_place - 1 + t) % ranks
                    self._parent[t][rank] = parent
                    self._children[t][parent].append(rank)
        self.above: list[list[Edge]] = [[] for _ in range(ranks)]
        self.below: list[list[Edge]] = [[] for _ in range(ranks)]
        self.fill = 0
        colour = self._colour_edges(ranks)
        for t in range(2):
            root = self._parent[t].index(-1)
            self._add_edges(t, root, colour[t])

    def _colour_edges(self, ranks: int) -> list[list[int]]:
        """The colour, 0 or 1, of the edge above each rank in each tree.

        An edge differs from the one above the same rank in the other tree, and from the one above its sibling.
        A cycle along which these two rules alternate has an even number of edges, so two colours are enough.
        """
        colour = [[-1] * ranks, [-1] * ranks]
        for first_tree, first_rank in product(range(2), range(ranks)):
            todo = [(first_tree, first_rank, 0)]
            while todo:
                t, rank, c = todo.pop()
                parent = self._parent[t][rank]
                if parent >= 0 and colour[t][rank] < 0:
                    colour[t][rank] = c
                    todo.append((1 - t, rank, 1 - c))
                    todo += [(t, sibling, 1 - c) for sibling in self._children[t][parent] if sibling != rank]
        return colour

    def _add_edges(self, t: int, rank: int, colour: list[int]) -> int:
        """Add the edges below and above a rank; returns when it first sends up.

        That is the first step of its edge's colour after its children have sent.
        """
        sent = [self._add_edges(t, child, colour) for child in self._children[t][rank]]
        ready = max(sent, default=-1) + 1
        parent = self._parent[t][rank]
        if parent < 0:
            self.fill = max(self.fill, ready)
            return ready
        first = ready if ready % 2 == colour[rank] else ready + 1
        self.above[rank].append(Edge(t, parent, first))
        self.below[parent].append(Edge(t, rank, first))
        return first

    def steps(self, num_segments: int) -> int:
        """How many steps the way up takes: each segment follows two steps behind the one before."""
        return self.fill + 2 * (num_segments - 1) if self.fill else 0


def _parent_place(i: int, p: int) -> int:
    """The parent of place i out of p; 0 for the root."""
    b = i & -i  # the lowest set bit
    parent = i - b if i & 2 * b else i + b
    return parent if parent <= p else i - b


@lru_cache(maxsize=64)
def two_trees(ranks: int) -> TwoTrees:
    """The two trees over this many ranks; built once."""
    return TwoTrees(ranks)
