"""Ring in both directions at once: each half of the array goes in its own direction.

    p   ranks            half 0    goes right: each rank sends to the next
    n   items            half 1    goes left: each rank sends to the one before

A ring that goes one way uses every link in one direction only; this one uses both.
"""

from collections.abc import Sequence

from simdist.arrays import Array, Reduction
from simdist.collectives.cost import Case, Cost, Formula, chunk_each_step
from simdist.collectives.multi_ring import all_reduce_round, rings_cost
from simdist.collectives.phases import in_turn, longest, phase
from simdist.collectives.registry import algorithm
from simdist.collectives.ring import order_of
from simdist.comm import Communicator

__all__ = ["bidirectional_ring_all_reduce"]


def _ways(ranks: int, order: Sequence[int] | None) -> Sequence[Sequence[int]]:
    right = order_of(ranks, order)
    return right, right[::-1]


def _cost(case: Case, order: Sequence[int] | None = None) -> Cost:
    return rings_cost(case, _ways(case.ranks, order))


def _formula(case: Case, order: Sequence[int] | None = None) -> Formula:
    order_of(case.ranks, order)
    steps = in_turn(chunk_each_step(case, reduces=True), chunk_each_step(case))
    if order is not None or case.on_one_node or case.per_node == 1 or not case.equal_nodes:
        return steps
    half = steps._replace(bytes=steps.bytes / 2)
    return longest(steps, phase(steps, 0), phase(half, 2, case.per_node))


@algorithm("all_reduce", "bidirectional_ring", cost=_cost, formula=_formula)
def bidirectional_ring_all_reduce(
    x: Array, comm: Communicator, op: Reduction, order: Sequence[int] | None = None
) -> None:
    """Replace x by its reduction over all ranks: two rings of half the array each, in opposite directions.

    On four ranks, c3 and c3' being chunk 3 of either half:

        rank        0                1                2                3
        step 1    c3 ->  <- c1'    c0 ->  <- c2'    c1 ->  <- c3'    c2 ->  <- c0'      fold what comes
        step 2    c2 ->  <- c2'    c3 ->  <- c3'    c0 ->  <- c0'    c1 ->  <- c1'
        step 3    c1 ->  <- c3'    c2 ->  <- c0'    c3 ->  <- c1'    c0 ->  <- c2'
        step 4    c0 ->  <- c0'    c1 ->  <- c1'    c2 ->  <- c2'    c3 ->  <- c3'      keep what comes
        …

    Args:
        x: shape (n,), contiguous, the same length and dtype on every rank; overwritten.
        order: the ranks as they sit round the ring.

    Cost per rank: 4(p-1) messages, two a step; 2n(p-1)/p bytes sent, half of them each way; n(p-1)/p reduced.
    Where a rank has a port for each neighbour, the bytes take half the time of the plain ring. Where one port
    serves both, as in the formula, they take the same, but one half is folded while the other travels. Between nodes
    the ways leave by different ranks, the last of a node and the first: if each rank has a card, each by half a chunk.
    """
    all_reduce_round(x, comm, op, _ways(comm.size, order))
