"""Ring: every rank talks only to its two neighbours, and every link is busy all the time.

    p   ranks            r   this rank           order   which rank sits at which place of the ring
    n   items (bytes, in costs)                  c3      chunk 3: the items that rank 3 ends up with

Bandwidth-optimal: no all-reduce moves fewer bytes per rank. Its price is a latency that grows with p.

Source: Patarasuk and Yuan 2009, J. Parallel Distrib. Comput. 69(2), 117-124.
"""

from collections.abc import Iterable, Sequence
from operator import index

from simdist.arrays import Array, Chunks, Reduction, partition, slices
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula, chunk_each_step
from simdist.collectives.phases import in_turn
from simdist.collectives.registry import algorithm
from simdist.collectives.rounds import circuit
from simdist.comm import Communicator
from simdist.errors import ArgumentError

__all__ = ["Ring", "order_of", "ring_all_gather", "ring_all_reduce", "ring_reduce_scatter"]


class Ring:
    """A rank's position in a ring, and the ranks after and before it.

    Args:
        ranks: how many there are.
        rank: this one.
        order: the ranks as they sit round the ring; 0, 1, 2, … where not given.

    Raises:
        ArgumentError: order does not name each rank once.
    """

    def __init__(self, ranks: int, rank: int, order: Sequence[int] | None = None) -> None:
        self.order = order_of(ranks, order)
        self.place = self.order.index(rank)
        self.after = self.back(-1)
        self.before = self.back(1)

    def back(self, places: int) -> int:
        """The rank that sits this many places before this one."""
        return self.order[(self.place - places) % len(self.order)]

    def in_ring_order(self, chunks: Chunks) -> Chunks:
        """The chunks in the order of the ring: that of this rank at its place."""
        return chunks if isinstance(self.order, range) else [chunks[rank] for rank in self.order]


def order_of(ranks: int, order: Iterable[int] | None) -> Sequence[int]:
    """The order given, or 0, 1, 2, …; raises ArgumentError unless it names each rank once."""
    if order is None:
        return range(ranks)
    try:
        found = [index(rank) for rank in order]
    except TypeError:  # no whole numbers
        found = []
    if sorted(found) != list(range(ranks)):
        raise ArgumentError(f"order {order!r:.60} does not name each of the ranks 0 to {ranks - 1} once")
    return found


def _steps(case: Case, order: Sequence[int] | None = None, reduces: bool = False) -> Formula:
    """The Formula of p-1 steps; which links they cross is known if the ranks sit in their own order."""
    order_of(case.ranks, order)
    return circuit(case, reduces) if order is None else chunk_each_step(case, reduces)


# -- reduce-scatter -----------------------------------------------------------------------------------


def _reduce_scatter_cost(case: Case, order: Sequence[int] | None = None) -> Cost:
    p = case.ranks
    ring = Ring(p, case.rank, order)
    # A rank passes on every chunk but its own, and folds every chunk but the one it sends first.
    return Cost(
        steps=p - 1,
        messages=p - 1,
        sent_bytes=case.num_bytes - case.chunk_bytes(case.rank),
        reduced_bytes=case.num_bytes - case.chunk_bytes(ring.back(1)),
    )


@algorithm(
    "reduce_scatter", "ring", cost=_reduce_scatter_cost, formula=lambda case, order=None: _steps(case, order, True)
)
def ring_reduce_scatter(x: Array, comm: Communicator, op: Reduction, order: Sequence[int] | None = None) -> None:
    """Leave in chunk r of x the reduction over all ranks; the other chunks are working space.

    A chunk sets out from the rank after its owner, collects one contribution a step, and arrives home,
    complete, at the last. On four ranks, c3 meaning chunk 3:

        rank        0        1        2        3
        step 1    c3 ->    c0 ->    c1 ->    c2 ->      each sends the chunk before its own
        step 2    c2 ->    c3 ->    c0 ->    c1 ->      each sends what it has just folded
        step 3    c1 ->    c2 ->    c3 ->    c0 ->
        holds     c0       c1       c2       c3

    Cost per rank: p-1 messages, n(p-1)/p bytes sent and as many reduced.
    """
    p, ring = comm.size, Ring(comm.size, comm.rank, order)
    place, after, before = ring.place, ring.after, ring.before
    chunks = ring.in_ring_order(slices(len(x), p))
    incoming = scratch(x, partition(len(x), p).largest)
    give = x[chunks[(place - 1) % p]]
    for step in range(1, p):
        take = x[chunks[(place - 1 - step) % p]]
        y = incoming if len(take) == len(incoming) else incoming[: len(take)]
        comm.sendrecv(give, after, y, before)
        op.fold(take, y)
        give = take


# -- all-gather ---------------------------------------------------------------------------------------


def _all_gather_cost(case: Case, order: Sequence[int] | None = None) -> Cost:
    p = case.ranks
    # A rank passes on every chunk but that of the rank after it, where the ring closes.
    last = Ring(p, case.rank, order).after
    return Cost(steps=p - 1, messages=p - 1, sent_bytes=case.num_bytes - case.chunk_bytes(last))


@algorithm("all_gather", "ring", cost=_all_gather_cost, formula=_steps)
def ring_all_gather(x: Array, comm: Communicator, chunks: Chunks, order: Sequence[int] | None = None) -> None:
    """Fill x, of which each rank holds its own chunk, with the chunks of all.

        rank        0        1        2        3
        step 1    c0 ->    c1 ->    c2 ->    c3 ->      each sends its own chunk
        step 2    c3 ->    c0 ->    c1 ->    c2 ->      each sends what it has just received
        step 3    c2 ->    c3 ->    c0 ->    c1 ->
        holds     all      all      all      all

    Cost per rank: p-1 messages, n(p-1)/p bytes sent.
    """
    p, ring = comm.size, Ring(comm.size, comm.rank, order)
    place, after, before = ring.place, ring.after, ring.before
    chunks = ring.in_ring_order(chunks)
    give = x[chunks[place]]
    for step in range(1, p):
        take = x[chunks[(place - step) % p]]
        comm.sendrecv(give, after, take, before)
        give = take


# -- all-reduce ---------------------------------------------------------------------------------------


def _all_reduce_cost(case: Case, order: Sequence[int] | None = None) -> Cost:
    return in_turn(_reduce_scatter_cost(case, order), _all_gather_cost(case, order))


def _all_reduce_formula(case: Case, order: Sequence[int] | None = None) -> Formula:
    return in_turn(_steps(case, order, reduces=True), _steps(case, order))


@algorithm("all_reduce", "ring", cost=_all_reduce_cost, formula=_all_reduce_formula)
def ring_all_reduce(x: Array, comm: Communicator, op: Reduction, order: Sequence[int] | None = None) -> None:
    """Replace x by its reduction over all ranks: p-1 steps until each chunk is complete on one rank, p-1
    more until it is everywhere.

    Args:
        x: shape (n,), contiguous, the same length and dtype on every rank; overwritten.
        order: the ranks as they sit round the ring; a ring that follows the wires avoids congestion.

    Cost per rank: 2(p-1) messages, 2n(p-1)/p bytes sent, n(p-1)/p reduced.
    """
    ring_reduce_scatter(x, comm, op, order)
    ring_all_gather(x, comm, slices(len(x), comm.size), order)
