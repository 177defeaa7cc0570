"""Several rings at once: each part of the array goes round its own.

    p   ranks            k   rings, as many as a node has ranks
    n   items

A ring that goes one way uses every link in one direction only; two, in opposite directions, use both. And a single ring
enters a node by one rank and leaves it by another, so of a node's network cards two are busy and the rest idle. Each of
k rings uses the card of a different rank.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from simdist.arrays import Array, Reduction, partition
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula, chunk_each_step
from simdist.collectives.phases import in_turn, longest, phase
from simdist.collectives.registry import algorithm, find
from simdist.collectives.ring import Ring, order_of
from simdist.comm import Communicator

__all__ = ["all_reduce_round", "bidirectional_ring_all_reduce", "multi_ring_all_reduce", "rings_cost"]

Orders = Sequence[Sequence[int]]


def all_reduce_round(x: Array, comm: Communicator, op: Reduction, orders: Orders) -> None:
    """Replace x by its reduction over all ranks: an equal part of it round a ring of each of these orders."""
    parts = partition(len(x), len(orders))
    rings = (Ring(comm.size, comm.rank, order) for order in orders)
    ways = [_go_round(x[parts[i]], comm, op, ring, tag=i) for i, ring in enumerate(rings)]
    for _ in zip_longest(*ways):  # one step of each ring in turn, until all are done
        pass


def _go_round(x: Array, comm: Communicator, op: Reduction, ring: Ring, tag: int) -> Iterator[None]:
    """A ring all-reduce that yields while its messages are in flight.

    In step k a rank passes on the chunk of the rank k places back, and receives that of k + 1 places back. In the first
    p-1 steps it folds the chunk into its own, in the other p-1 it keeps it.
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


def rings_cost(case: Case, orders: Orders) -> Cost:
    """What one rank does in `all_reduce_round`."""
    parts = partition(case.num_items, len(orders))
    one = find("all_reduce", "ring").cost
    costs = [one(replace(case, num_bytes=parts.size(i) * case.itemsize), order=o) for i, o in enumerate(orders)]
    return in_turn(*costs)._replace(steps=costs[0].steps)  # they go round at once


# -- a ring for each rank of a node -----------------------------------------------------------------------


def _orders(nodes: Sequence[Sequence[int]]) -> Orders:
    """Ring i goes through every node from the node's rank i on; a single node needs only one ring."""
    rings = max(map(len, nodes)) if len(nodes) > 1 else 1
    return [[node[(i + j) % len(node)] for node in nodes for j in range(len(node))] for i in range(rings)]


def _cost(case: Case) -> Cost:
    p, k = case.ranks, case.per_node
    return rings_cost(case, _orders([range(first, min(first + k, p)) for first in range(0, p, k)]))


def _formula(case: Case) -> Formula:
    p, n, k = case.ranks, case.num_bytes, case.per_node
    if case.on_one_node:
        return find("all_reduce", "ring").formula(case)
    r = p % k or k  # ranks on the last node
    steps, share = 2 * (p - 1), 2 * n * (p - 1) / p
    inside, full = Formula(0, share * (k - 1) / k), Formula(steps, share / k, share / 2)
    last = Formula(steps, -(-k // r) * share / k, share / 2)
    return longest(in_turn(inside, full), phase(inside, 0), phase(full, k), phase(last, r))


@algorithm("all_reduce", "multi_ring", cost=_cost, formula=_formula)
def multi_ring_all_reduce(x: Array, comm: Communicator, op: Reduction) -> None:
    """Replace x by its reduction over all ranks: as many rings as a node has ranks, 1/k of the array round each.

    On eight ranks of two nodes:

                  node 0              node 1
        ring 0    0 -- 1 -- 2 -- 3 -- 4 -- 5 -- 6 -- 7 -- 0      between the nodes 3 to 4 and 7 to 0
        ring 1    1 -- 2 -- 3 -- 0 -- 5 -- 6 -- 7 -- 4 -- 1                        0 to 5 and 4 to 1
        ring 2    2 -- 3 -- 0 -- 1 -- 6 -- 7 -- 4 -- 5 -- 2                        1 to 6 and 5 to 2
        ring 3    3 -- 0 -- 1 -- 2 -- 7 -- 4 -- 5 -- 6 -- 3                        2 to 7 and 6 to 3

    So in each step every rank sends 1/k of its bytes to another node, and the rest to its neighbour: all network
    cards are busy all the time, and so are the links inside. NCCL's channels are rings laid out like this.

    Cost per rank: 2k(p-1) messages, k a step; 2n(p-1)/p bytes sent, of which 1/k to another node; n(p-1)/p reduced.
    The formula is that of the slowest: the links inside, a card of a full node, or one of a last node of r < k ranks,
    by which up to ceil(k/r) rings leave. It is an upper bound where rings share a card, as one's latency passes while
    another's bytes leave, and for short messages: they do not wait for their receivers, so that one ring may be ahead
    of another. On one node it is the plain ring.
    """
    all_reduce_round(x, comm, op, _orders(list(comm.nodes.members.values())))


# -- a ring in each direction -------------------------------------------------------------------------------


def _ways(ranks: int, order: Sequence[int] | None) -> Orders:
    right = order_of(ranks, order)
    return right, right[::-1]


def _both_ways_cost(case: Case, order: Sequence[int] | None = None) -> Cost:
    return rings_cost(case, _ways(case.ranks, order))


def _both_ways_formula(case: Case, order: Sequence[int] | None = None) -> Formula:
    order_of(case.ranks, order)
    steps = in_turn(chunk_each_step(case, reduces=True), chunk_each_step(case))
    if order is not None or case.on_one_node or case.per_node == 1 or not case.equal_nodes:
        return steps
    half = steps._replace(bytes=steps.bytes / 2)
    return longest(steps, phase(steps, 0), phase(half, 2, case.per_node))


@algorithm("all_reduce", "bidirectional_ring", cost=_both_ways_cost, formula=_both_ways_formula)
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
