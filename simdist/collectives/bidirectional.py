"""Ring in both directions at once: each half of the array goes round its own way.

    p   ranks            half 0    goes right: each rank sends to the next
    n   items            half 1    goes left: each rank sends to the one before

A ring that goes one way uses every link in one direction only; this one uses both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from simdist.arrays import Array, Reduction, partition
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.registry import algorithm, find
from simdist.collectives.ring import Ring
from simdist.comm import Communicator

__all__ = ["bidirectional_ring_all_reduce"]


def _cost(case: Case, order: Sequence[int] | None = None) -> Cost:
    one_way = find("all_reduce", "ring").cost
    order = range(case.ranks) if order is None else order
    halves = partition(case.num_bytes // case.itemsize, 2)
    right, left = (replace(case, num_bytes=halves.size(i) * case.itemsize) for i in (0, 1))
    a, b = one_way(right, order=order), one_way(left, order=order[::-1])
    return Cost(a.steps, a.messages + b.messages, a.sent_bytes + b.sent_bytes, a.reduced_bytes + b.reduced_bytes)


def _formula(case: Case, order: Sequence[int] | None = None) -> Formula:
    return find("all_reduce", "ring").formula(case, order=order)


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
    serves both, as in the formula, they take the same, but one half is folded while the other travels.
    """
    order = range(comm.size) if order is None else order
    halves = partition(len(x), 2)
    right = _go_round(x[halves[0]], comm, op, Ring(comm.size, comm.rank, order), tag=0)
    left = _go_round(x[halves[1]], comm, op, Ring(comm.size, comm.rank, order[::-1]), tag=1)
    for _ in zip_longest(right, left):  # takes a step of each in turn, until both are round
        pass


def _go_round(x: Array, comm: Communicator, op: Reduction, ring: Ring, tag: int) -> Iterator[None]:
    """A ring all-reduce that rests, at each yield, while its messages are under way.

    In step k a rank passes on the chunk of the rank k places back, and takes that of k + 1 places back: for
    p-1 steps to fold it into its own, for p-1 more to keep it.
    """
    p = comm.size
    chunks = partition(len(x), p)
    incoming = scratch(x, chunks.largest)
    for step in range(1, 2 * p - 1):
        give, take = x[chunks[ring.back(step)]], x[chunks[ring.back(step + 1)]]
        y = incoming[: len(take)] if step < p else take
        requests = comm.irecv(y, ring.before, tag), comm.isend(give, ring.after, tag)
        yield
        for request in requests:
            request.wait()
        if step < p:
            op(take, y)
