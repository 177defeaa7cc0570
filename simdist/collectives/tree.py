r"""Binomial trees: all ranks that have the array already help to pass it on, so that its reach doubles every round.

    p   ranks            root    the rank that the tree grows from, or ends at
    r   this rank        place   how far a rank stands behind the root, round the ring: (r - root) mod p
    n   items            c23     chunks 2 and 3

About lg p rounds instead of p - 1. The parent of a place is that number with its lowest set bit cleared. So the parent
of 6 = 110 is 4 = 100, and a place with k trailing zeros has up to k children, each with one of those bits set.

    place         0                        0 = 000
              ____|____
             |    |    |
             4    2    1                   4 = 100    2 = 010    1 = 001
            / \   |
           6   5  3                        6 = 110    5 = 101    3 = 011
           |
           7                               7 = 111

The subtree of a place consists of consecutive numbers, its own first. Where p is not a power of two, those from p on
are missing, and nothing else changes. The pictures below are of eight ranks and root 0.

Source: Thakur, Rabenseifner, Gropp 2005, Int. J. High Perform. Comput. Appl. 19(1), 49-66; as minimum
spanning trees in Chan, Heimlich, Purkayastha, van de Geijn 2007, Concurrency Comput. 19(13), 1749-1783.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from simdist.arrays import Array, Chunks, Reduction
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.phases import in_turn
from simdist.collectives.registry import algorithm
from simdist.collectives.rounds import by_rounds, distances, tree
from simdist.comm import Communicator

__all__ = [
    "Binomial",
    "Branch",
    "binomial_broadcast",
    "binomial_gather",
    "binomial_reduce",
    "binomial_scatter",
    "tree_all_reduce",
]


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


def _rounds(case: Case, each: Callable[[int], Formula]) -> Formula:
    """The Formula of the tree's rounds, given that of one message of each distance."""
    return by_rounds(case, ((tree(case, d), each(d)) for d in distances(case.ranks)))


# -- broadcast ----------------------------------------------------------------------------------------


def _broadcast_cost(case: Case) -> Cost:
    children = len(Binomial(case.ranks, case.rank, case.root).children)
    return Cost(Binomial.rounds(case.ranks), children, children * case.num_bytes)


def _broadcast_formula(case: Case) -> Formula:
    return _rounds(case, lambda _: Formula(1, case.num_bytes))


@algorithm("broadcast", "binomial", cost=_broadcast_cost, formula=_broadcast_formula)
def binomial_broadcast(x: Array, comm: Communicator, root: int) -> None:
    """Replace x by root's, down the tree: the child with the most to pass on is served first.

        rank        0        1        2        3        4        5        6        7
        step 1    x -> 4
        step 2    x -> 2                              x -> 6
        step 3    x -> 1            x -> 3            x -> 5            x -> 7

    Cost: one message of n bytes to each child: root sends ceil(lg p), at least half of the ranks none.
    """
    tree = Binomial(comm.size, comm.rank, root)
    if tree.parent is not None:
        comm.recv(x, tree.parent)
    for child in tree.children:
        comm.send(x, child.rank)


# -- reduce -------------------------------------------------------------------------------------------


def _reduce_cost(case: Case) -> Cost:
    tree, n = Binomial(case.ranks, case.rank, case.root), case.num_bytes
    up = int(tree.parent is not None)
    return Cost(Binomial.rounds(case.ranks), up, up * n, len(tree.children) * n)


def _reduce_formula(case: Case) -> Formula:
    return _rounds(case, lambda _: Formula(1, case.num_bytes, case.num_bytes))


@algorithm("reduce", "binomial", cost=_reduce_cost, formula=_reduce_formula)
def binomial_reduce(x: Array, comm: Communicator, op: Reduction, root: int) -> None:
    """Leave in root's x the reduction over all ranks, up the tree: the broadcast backwards. s67 is the sum of
    ranks 6 and 7.

        rank        0        1        2        3        4        5        6        7
        step 1             s1 -> 0           s3 -> 2           s5 -> 4           s7 -> 6
        step 2                      s23 -> 0                            s67 -> 4
        step 3                                       s4567 -> 0

    Cost: each rank but root sends one message, n bytes, and reduces n bytes from each child.
    """
    tree = Binomial(comm.size, comm.rank, root)
    y = scratch(x)
    for child in reversed(tree.children):
        comm.recv(y, child.rank)
        op(x, y)
    if tree.parent is not None:
        comm.send(x, tree.parent)


# -- scatter ------------------------------------------------------------------------------------------


def _scatter_cost(case: Case) -> Cost:
    tree = Binomial(case.ranks, case.rank, case.root)
    below = _block_bytes(case, tree) - case.chunk_bytes(case.rank)
    return Cost(Binomial.rounds(case.ranks), len(tree.children), below)


def _block_bytes(case: Case, tree: Binomial) -> int:
    """The bytes of all chunks of a rank's branch."""
    items: int = tree.layout(case.chunks)(tree.branch).stop
    return items * case.itemsize


def _share_formula(case: Case) -> Formula:
    p = case.ranks
    return _rounds(case, lambda d: Formula(1, case.num_bytes * min(d, p - d) / p))


@algorithm("scatter", "binomial", cost=_scatter_cost, formula=_share_formula)
def binomial_scatter(x: Array, comm: Communicator, chunks: Chunks, root: int) -> Array:
    """Give each rank its chunk of root's x: each child gets the block of all chunks of its branch.

        rank        0         1         2         3         4         5         6         7
        step 1   c4567->4
        step 2   c23->2                                   c67->6
        step 3   c1->1              c3->3                 c5->5               c7->7
        holds     c0        c1        c2        c3        c4        c5        c6        c7

    Cost: root sends ceil(lg p) messages, n(p-1)/p bytes; every other rank all chunks of its branch but its
    own, one message a child. Root copies x once if it is not rank 0, to turn its own chunk to the front.
    """
    tree = Binomial(comm.size, comm.rank, root)
    part = tree.layout(chunks)
    if tree.parent is None:
        block = _rolled(x, -chunks[root].start)
    else:
        block = scratch(x, part(tree.branch).stop)
        comm.recv(block, tree.parent)
    for child in tree.children:
        comm.send(block[part(child)], child.rank)
    mine = chunks[comm.rank]
    return block[: mine.stop - mine.start].copy()


def _rolled(x: Array, k: int) -> Array:
    """x rotated by k places, the last items to the front: a new array, or x itself."""
    k %= max(1, len(x))
    if k == 0:
        return x
    y = scratch(x)
    y[k:] = x[: len(x) - k]
    y[:k] = x[len(x) - k :]
    return y


# -- gather -------------------------------------------------------------------------------------------


def _gather_cost(case: Case) -> Cost:
    tree = Binomial(case.ranks, case.rank, case.root)
    up = int(tree.parent is not None)
    return Cost(Binomial.rounds(case.ranks), up, up * _block_bytes(case, tree))


@algorithm("gather", "binomial", cost=_gather_cost, formula=_share_formula)
def binomial_gather(shard: Array, comm: Communicator, chunks: Chunks, root: int) -> Array | None:
    """Join the shards of all ranks on root: each rank collects the block of its branch and sends it up.

        rank        0         1         2         3         4         5         6         7
        step 1              c1->0               c3->2               c5->4               c7->6
        step 2                       c23->0                                 c67->4
        step 3                                          c4567->0
        holds     all

    Cost: each rank but root sends one message, with all chunks of its branch, at most half of all. Root copies
    the result once if it is not rank 0.
    """
    tree = Binomial(comm.size, comm.rank, root)
    part = tree.layout(chunks)
    block = scratch(shard, part(tree.branch).stop)
    block[: len(shard)] = shard
    for child in reversed(tree.children):
        comm.recv(block[part(child)], child.rank)
    if tree.parent is None:
        return _rolled(block, chunks[root].start)
    comm.send(block, tree.parent)
    return None


# -- all-reduce ---------------------------------------------------------------------------------------


def _all_reduce_cost(case: Case) -> Cost:
    case = replace(case, root=0)
    return in_turn(_reduce_cost(case), _broadcast_cost(case))


def _all_reduce_formula(case: Case) -> Formula:
    n = case.num_bytes
    return _rounds(replace(case, root=0), lambda _: Formula(2, 2 * n, n))  # a round up and a round down


@algorithm("all_reduce", "tree", cost=_all_reduce_cost, formula=_all_reduce_formula)
def tree_all_reduce(x: Array, comm: Communicator, op: Reduction) -> None:
    """Replace x by its reduction over all ranks: up the tree to rank 0, and the result down again.

    Few rounds, but the whole array in each, and in most of them most ranks are idle.

    Cost per rank: at most ceil(lg p) messages of n bytes; rank 0 reduces n ceil(lg p) bytes.
    """
    binomial_reduce(x, comm, op, 0)
    binomial_broadcast(x, comm, 0)
