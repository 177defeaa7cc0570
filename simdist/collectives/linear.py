"""Linear: one rank talks to all others, one after another; in the naive all-reduce every rank does.

    p   ranks            root   the rank that has the whole array, or gets it
    n   items            r      this rank

The plainest way, against which the others are measured. What the root sends or receives grows with p, and
all others wait for it.

In the formulas a message is sent when the one before has arrived. For short arrays they are upper bounds: messages that
are in flight together all take about one latency.
"""

import numpy as np

from simdist.arrays import Array, Chunks, Reduction
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula, repeated
from simdist.collectives.phases import over_nodes
from simdist.collectives.registry import algorithm
from simdist.collectives.rounds import shifts
from simdist.comm import Communicator

__all__ = ["linear_broadcast", "linear_gather", "linear_reduce", "linear_scatter", "naive_all_reduce"]


def _others(comm: Communicator) -> list[int]:
    """All ranks but this one, in order."""
    return [rank for rank in range(comm.size) if rank != comm.rank]


def _one_by_one(case: Case, each: Formula) -> Formula:
    """The Formula of root's messages to or from all others, first those on its node."""
    p, k = case.ranks, case.per_node
    start = (case.root + case.first_lacks) // k * k - case.first_lacks  # of its node
    near = min(p, start + k) - max(0, start) - 1
    return over_nodes(case, repeated(near, each), repeated(p - 1 - near, each), senders=1)


# -- broadcast ----------------------------------------------------------------------------------------


def _broadcast_cost(case: Case) -> Cost:
    sent = case.ranks - 1 if case.rank == case.root else 0
    return Cost(case.ranks - 1, sent, sent * case.num_bytes)


def _broadcast_formula(case: Case) -> Formula:
    return _one_by_one(case, Formula(1, case.num_bytes))


@algorithm("broadcast", "linear", cost=_broadcast_cost, formula=_broadcast_formula)
def linear_broadcast(x: Array, comm: Communicator, root: int) -> None:
    """Replace x by root's: root sends it to each rank.

        rank        0        1        2        3
        step 1    x -> 1
        step 2    x -> 2
        step 3    x -> 3

    Cost: root sends p-1 messages, n(p-1) bytes; the others none.
    """
    if comm.rank != root:
        comm.recv(x, root)
        return
    for dst in _others(comm):
        comm.send(x, dst)


# -- reduce -------------------------------------------------------------------------------------------


def _reduce_cost(case: Case) -> Cost:
    steps, n = case.ranks - 1, case.num_bytes
    return Cost(steps, 0, 0, steps * n) if case.rank == case.root else Cost(steps, 1, n)


def _reduce_formula(case: Case) -> Formula:
    return _one_by_one(case, Formula(1, case.num_bytes, case.num_bytes))


@algorithm("reduce", "linear", cost=_reduce_cost, formula=_reduce_formula)
def linear_reduce(x: Array, comm: Communicator, op: Reduction, root: int) -> None:
    """Leave in root's x the reduction over all ranks: root folds what each rank sends into its own, in order.

        rank        0        1        2        3
        step 1             x -> 0                       0 holds s01, the sum of ranks 0 and 1
        step 2                      x -> 0              0 holds s012
        step 3                               x -> 0     0 holds s0123

    Cost: each rank but root sends one message, n bytes; root reduces n(p-1) bytes.
    """
    if comm.rank != root:
        comm.send(x, root)
        return
    y = scratch(x)
    for src in _others(comm):
        comm.recv(y, src)
        op(x, y)


# -- scatter ------------------------------------------------------------------------------------------


def _scatter_cost(case: Case) -> Cost:
    steps = case.ranks - 1
    if case.rank != case.root:
        return Cost(steps, 0, 0)
    return Cost(steps, steps, case.num_bytes - case.chunk_bytes(case.root))


def _share_formula(case: Case) -> Formula:
    return _one_by_one(case, Formula(1, case.num_bytes / case.ranks))


@algorithm("scatter", "linear", cost=_scatter_cost, formula=_share_formula)
def linear_scatter(x: Array, comm: Communicator, chunks: Chunks, root: int) -> Array:
    """Give each rank its chunk of root's x: root sends each its own.

        rank        0         1         2         3
        step 1    c1 -> 1
        step 2    c2 -> 2
        step 3    c3 -> 3
        holds     c0        c1        c2        c3

    Cost: root sends p-1 messages, n(p-1)/p bytes; the others none.
    """
    mine = chunks[comm.rank]
    if comm.rank == root:
        for dst in _others(comm):
            comm.send(x[chunks[dst]], dst)
        return x[mine].copy()
    shard = np.empty_like(x, shape=(mine.stop - mine.start,))
    comm.recv(shard, root)
    return shard


# -- gather -------------------------------------------------------------------------------------------


def _gather_cost(case: Case) -> Cost:
    steps = case.ranks - 1
    return Cost(steps, 0, 0) if case.rank == case.root else Cost(steps, 1, case.chunk_bytes(case.rank))


@algorithm("gather", "linear", cost=_gather_cost, formula=_share_formula)
def linear_gather(shard: Array, comm: Communicator, chunks: Chunks, root: int) -> Array | None:
    """Join the shards of all ranks on root, which receives each where it belongs.

        rank        0         1         2         3
        step 1              c1 -> 0
        step 2                        c2 -> 0
        step 3                                  c3 -> 0
        holds     all

    Cost: each rank but root sends one message with its chunk.
    """
    if comm.rank != root:
        comm.send(shard, root)
        return None
    full = np.empty_like(shard, shape=(chunks[comm.size - 1].stop,))
    full[chunks[root]] = shard
    for src in _others(comm):
        comm.recv(full[chunks[src]], src)
    return full


# -- all-reduce ---------------------------------------------------------------------------------------


def _naive_cost(case: Case) -> Cost:
    steps, n = case.ranks - 1, case.num_bytes
    return Cost(steps, steps, steps * n, steps * n)


def _naive_formula(case: Case) -> Formula:
    return shifts(case, Formula(1, case.num_bytes, case.num_bytes))


@algorithm("all_reduce", "naive", cost=_naive_cost, formula=_naive_formula)
def naive_all_reduce(x: Array, comm: Communicator, op: Reduction) -> None:
    """Replace x by its reduction over all ranks: every rank sends its whole x to every other.

    Each rank then folds what all put in, in the order of ranks, and so all get the same bits.

        rank        0        1        2        3
        step 1    x -> 1   x -> 2   x -> 3   x -> 0
        step 2    x -> 2   x -> 3   x -> 0   x -> 1
        step 3    x -> 3   x -> 0   x -> 1   x -> 2
        holds     s0123    s0123    s0123    s0123

    Cost per rank: p-1 messages, n(p-1) bytes sent and as many reduced; working space for p arrays.
    """
    p, r = comm.size, comm.rank
    rows = scratch(x, (p, len(x)))
    rows[r] = x
    for step in range(1, p):
        comm.sendrecv(x, (r + step) % p, rows[(r - step) % p], (r - step) % p)
    for i in range(1, p):
        op(rows[0], rows[i])
    x[:] = rows[0]
