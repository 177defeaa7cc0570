"""Pairwise: every rank talks to every other, to one partner a step or to all at once.

    p   ranks         r   this rank         k   a step: r sends to r + k and hears from r - k, round the ring
    n   items         ab  rank a's part for rank b

Nothing is passed on by a third rank, so nothing travels twice. In each step every rank sends one message and
receives one, so no port is crowded.

Source: Thakur, Rabenseifner, Gropp 2005, Int. J. High Perform. Comput. Appl. 19(1), 49-66.
"""

from simdist.arrays import Array, Reduction, partition
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.registry import algorithm
from simdist.collectives.rounds import shifts
from simdist.comm import Communicator

__all__ = ["linear_all_to_all", "pairwise_all_to_all", "pairwise_reduce_scatter"]


def _formula(case: Case, reduces: bool = False) -> Formula:
    chunk = case.num_bytes / case.ranks
    return shifts(case, Formula(1, chunk, chunk if reduces else 0))


# -- reduce-scatter -----------------------------------------------------------------------------------


def _reduce_scatter_cost(case: Case) -> Cost:
    p, own = case.ranks, case.chunk_bytes(case.rank)
    return Cost(steps=p - 1, messages=p - 1, sent_bytes=case.num_bytes - own, reduced_bytes=(p - 1) * own)


@algorithm("reduce_scatter", "pairwise", cost=_reduce_scatter_cost, formula=lambda case: _formula(case, reduces=True))
def pairwise_reduce_scatter(x: Array, comm: Communicator, op: Reduction) -> None:
    """Leave in chunk r of x the reduction over all ranks; the other chunks stay as they were.

    Each chunk goes from each rank straight to its owner, which folds it. On four ranks, 01 meaning rank 0's
    part of chunk 1:

        rank        0         1         2         3
        k = 1     01 -> 1   12 -> 2   23 -> 3   30 -> 0
        k = 2     02 -> 2   13 -> 3   20 -> 0   31 -> 1
        k = 3     03 -> 3   10 -> 0   21 -> 1   32 -> 2
        holds     c0        c1        c2        c3

    Cost per rank: p-1 messages, n(p-1)/p bytes sent and as many reduced.

    Source: Thakur, Rabenseifner, Gropp 2005, the reduce-scatter for long arrays.
    """
    p, r = comm.size, comm.rank
    chunks = partition(len(x), p)
    own = x[chunks[r]]
    y = scratch(own)
    for k in range(1, p):
        dst, src = (r + k) % p, (r - k) % p
        comm.sendrecv(x[chunks[dst]], dst, y, src)
        op(own, y)


# -- all-to-all ---------------------------------------------------------------------------------------


def _all_to_all_cost(case: Case, steps: int) -> Cost:
    return Cost(steps, case.ranks - 1, case.num_bytes - case.chunk_bytes(case.rank))


@algorithm("all_to_all", "pairwise", cost=lambda case: _all_to_all_cost(case, steps=case.ranks - 1), formula=_formula)
def pairwise_all_to_all(x: Array, y: Array, comm: Communicator) -> None:
    """Fill row i of y with row r of rank i's x: one partner a step.

        rank        0         1         2         3
        k = 1     01 -> 1   12 -> 2   23 -> 3   30 -> 0
        k = 2     02 -> 2   13 -> 3   20 -> 0   31 -> 1
        k = 3     03 -> 3   10 -> 0   21 -> 1   32 -> 2

    Args:
        x, y: shape (p, m), contiguous.

    Cost per rank: p-1 messages, n(p-1)/p bytes sent.

    Source: Thakur, Rabenseifner, Gropp 2005, the all-to-all for long arrays.
    """
    p, r = comm.size, comm.rank
    y[r] = x[r]
    for k in range(1, p):
        dst, src = (r + k) % p, (r - k) % p
        comm.sendrecv(x[dst], dst, y[src], src)


@algorithm(
    "all_to_all", "linear", cost=lambda case: _all_to_all_cost(case, steps=min(case.ranks - 1, 1)), formula=_formula
)
def linear_all_to_all(x: Array, y: Array, comm: Communicator) -> None:
    """Fill row i of y with row r of rank i's x: all messages start at once, and arrive in any order.

        rank        0         1         2         3
        at once   01 -> 1   12 -> 2   23 -> 3   30 -> 0
                  02 -> 2   13 -> 3   20 -> 0   31 -> 1
                  03 -> 3   10 -> 0   21 -> 1   32 -> 2

    It takes one latency if the network carries all messages together; rows still leave and arrive one after the other.
    The formula is that of one message at a time.

    Args:
        x, y: shape (p, m), contiguous.

    Cost per rank: p-1 messages, n(p-1)/p bytes sent.
    """
    p, r = comm.size, comm.rank
    y[r] = x[r]
    away = [(r + k) % p for k in range(1, p)]  # the k-th of all ranks are for different ones
    requests = [comm.irecv(y[src], src) for src in reversed(away)]
    requests += [comm.isend(x[dst], dst) for dst in away]
    for request in requests:
        request.wait()
