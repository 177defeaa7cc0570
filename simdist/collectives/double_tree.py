"""Double binary tree: each half of the array goes up and down a tree of its own, in segments.

    p   ranks            t    a tree, 0 or 1; tree t reduces and broadcasts half t of the array
    n   items            s    segments that each half is cut into

In a single binary tree half of the ranks are leaves, which only send or only receive. `two_trees` builds two, such that
a leaf of one is an inner node of the other; so all ranks send and receive in nearly every step.

On several nodes the formula is a rough one: each step takes the link between nodes, and no two ranks share a card.

Source: Sanders, Speck, Träff 2009, Parallel Computing 35(12), 581-594.
"""

from collections.abc import Sequence

from simdist.arrays import Array, Partition, Reduction, partition
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.registry import algorithm
from simdist.collectives.segments import SEGMENT_BYTES, piece, segments
from simdist.collectives.two_trees import Edge, two_trees
from simdist.comm import Communicator

__all__ = ["double_tree_all_reduce"]


def _cut(length: int, itemsize: int, segment_bytes: int) -> tuple[Partition, int]:
    """The two halves, and how many segments each is cut into."""
    halves = partition(length, 2)
    return halves, len(segments(halves.largest, itemsize, segment_bytes))


def _cost(case: Case, segment_bytes: int = SEGMENT_BYTES) -> Cost:
    halves, s = _cut(case.num_items, case.itemsize, segment_bytes)
    trees = two_trees(case.ranks)
    above, below = trees.above[case.rank], trees.below[case.rank]
    up = sum(halves.size(edge.tree) for edge in above) * case.itemsize
    down = sum(halves.size(edge.tree) for edge in below) * case.itemsize
    return Cost(2 * trees.steps(s), s * (len(above) + len(below)), up + down, reduced_bytes=down)


def _formula(case: Case, segment_bytes: int = SEGMENT_BYTES) -> Formula:
    p, n = case.ranks, case.num_bytes
    _, s = _cut(case.num_items, case.itemsize, segment_bytes)
    steps = 2 * (p - 1).bit_length() + 2 * (s - 1) if p > 1 else 0  # each way: fill the tree, then one segment in two
    return Formula(2 * steps, 2 * steps * n / (2 * s), steps * n / (2 * s))


@algorithm("all_reduce", "double_tree", cost=_cost, formula=_formula)
def double_tree_all_reduce(x: Array, comm: Communicator, op: Reduction, segment_bytes: int = SEGMENT_BYTES) -> None:
    """Replace x by its reduction over all ranks: each half goes up its tree, and comes down by the same steps
    backwards.

    About lg p rounds, as trees need, and about 2n bytes, as rings move. On four ranks, with one segment a half, "a"
    being half 0 and "b" half 1; a further segment follows two steps behind:

        rank        0        1        2        3            tree 0     tree 1
        step 1    a -> 1                     b -> 2           3          0
        step 2             b -> 2   a -> 1                    1          2
        step 3             a -> 3   b -> 0                   0 2        1 3
        done      b                          a
        step 4    b -> 2                     a -> 1
        step 5             a -> 2   b -> 1
        step 6             a -> 0   b -> 3
        holds     a b      a b      a b      a b

    Args:
        segment_bytes: how long a segment may be; sqrt(n alpha / (2 beta lg p)) is best, with which each way takes about
            n beta + 2 lg p alpha + sqrt(8 n alpha beta lg p). The default is the same for all links, as of the chain.

    Cost per rank: s messages for each edge above it and as many for each below; at most 4s messages, 2n bytes
    sent and n reduced. At most 4(ceil(lg p) + s - 1) steps of one segment, n/2s bytes.
    """
    halves, s = _cut(len(x), x.dtype.itemsize, segment_bytes)
    parts = [[piece(half, s, segment) for segment in range(s)] for half in halves]
    trees = two_trees(comm.size)
    above, below = trees.above[comm.rank], trees.below[comm.rank]
    y = scratch(x, parts[0][0].stop)  # the first segment is as long as any
    for step in range(trees.steps(s)):  # up: a parent folds what its children send
        parent, give = _due(above, step, parts)
        child, take = _due(below, step, parts)
        incoming = y[: take.stop - take.start]
        _exchange(comm, x[give], parent, incoming, child)
        if child >= 0:
            op(x[take], incoming)
    for step in reversed(range(trees.steps(s))):  # down: the senders receive, and the receivers send
        parent, take = _due(above, step, parts)
        child, give = _due(below, step, parts)
        _exchange(comm, x[give], child, x[take], parent)


def _due(edges: Sequence[Edge], step: int, parts: list[list[slice]]) -> tuple[int, slice]:
    """Which of these edges is used in a step: the rank at its other end and the part that it carries; -1 if none is."""
    for tree, peer, first in edges:
        segment, odd = divmod(step - first, 2)  # an edge carries segment i in step first + 2i
        if not odd and 0 <= segment < len(parts[tree]):
            return peer, parts[tree][segment]
    return -1, slice(0, 0)


def _exchange(comm: Communicator, x: Array, dst: int, y: Array, src: int) -> None:
    """Send x to dst while receiving y from src; a rank of -1 means none."""
    if dst >= 0 and src >= 0:
        comm.sendrecv(x, dst, y, src)
    elif dst >= 0:
        comm.send(x, dst)
    elif src >= 0:
        comm.recv(y, src)
