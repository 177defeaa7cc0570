"""Scatter and gather in place of a tree: a broadcast and a reduction of long arrays, in which all ranks work.

    p   ranks            root   the rank that has the array, or gets it
    n   items            c1     chunk 1 of p

A binomial tree sends the whole array in each of its lg p rounds. Here it is cut first, and each piece goes its own way:
no rank sends more than about 2n bytes, for any p.

Source: Thakur, Rabenseifner, Gropp 2005, Int. J. High Perform. Comput. Appl. 19(1), 49-66: the broadcast of
long messages, after van de Geijn, and the reduce of long messages, after Rabenseifner.
"""

from simdist.arrays import Array, Reduction, partition
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.phases import in_turn
from simdist.collectives.registry import algorithm, find
from simdist.collectives.tree import binomial_gather, binomial_scatter
from simdist.comm import Communicator

__all__ = ["reduce_scatter_gather", "scatter_all_gather"]


# -- broadcast ----------------------------------------------------------------------------------------


def _broadcast_cost(case: Case, all_gather: str = "ring") -> Cost:
    return in_turn(find("scatter", "binomial").cost(case), find("all_gather", all_gather).cost(case))


def _broadcast_formula(case: Case, all_gather: str = "ring") -> Formula:
    return in_turn(find("scatter", "binomial").formula(case), find("all_gather", all_gather).formula(case))


@algorithm("broadcast", "scatter_all_gather", cost=_broadcast_cost, formula=_broadcast_formula)
def scatter_all_gather(x: Array, comm: Communicator, root: int, all_gather: str = "ring") -> None:
    """Replace x by root's: scatter its chunks down a binomial tree, then all-gather them round the ring.

        rank        0         1         2         3
        step 1    c23->2                                    scatter
        step 2    c1 ->1              c3 ->3
        holds     c0        c1        c2        c3
        step 3    c0 ->     c1 ->     c2 ->     c3 ->       all-gather
        step 4    c3 ->     c0 ->     c1 ->     c2 ->
        step 5    c2 ->     c3 ->     c0 ->     c1 ->
        holds     all       all       all       all

    Args:
        all_gather: which algorithm does the second part; "recursive_doubling" is what the paper takes for arrays of
            middle length, in 2 lg p rounds where p is a power of two.

    Cost, with the ring: ceil(lg p) + p - 1 messages and 2n(p-1)/p bytes sent at root; less elsewhere.

    Raises:
        UnknownNameError: no such algorithm; on every rank.
    """
    chunks, gather = partition(len(x), comm.size), find("all_gather", all_gather)
    if not getattr(x.flags, "writeable", True):  # root's may be read-only, and the all-gather writes to it
        x = x.copy()
    x[chunks[comm.rank]] = binomial_scatter(x, comm, chunks, root)
    gather.run(x, comm, chunks)


# -- reduce -------------------------------------------------------------------------------------------


def _reduce_cost(case: Case, reduce_scatter: str = "ring") -> Cost:
    return in_turn(find("reduce_scatter", reduce_scatter).cost(case), find("gather", "binomial").cost(case))


def _reduce_formula(case: Case, reduce_scatter: str = "ring") -> Formula:
    return in_turn(find("reduce_scatter", reduce_scatter).formula(case), find("gather", "binomial").formula(case))


@algorithm("reduce", "reduce_scatter_gather", cost=_reduce_cost, formula=_reduce_formula)
def reduce_scatter_gather(x: Array, comm: Communicator, op: Reduction, root: int, reduce_scatter: str = "ring") -> None:
    """Leave in root's x the reduction over all ranks: reduce-scatter round the ring, then gather up a tree.

        rank        0         1         2         3
        step 1    c3 ->     c0 ->     c1 ->     c2 ->       reduce-scatter
        step 2    c2 ->     c3 ->     c0 ->     c1 ->
        step 3    c1 ->     c2 ->     c3 ->     c0 ->
        holds     c0        c1        c2        c3
        step 4              c1 ->0              c3 ->2      gather
        step 5                        c23->0
        holds     all

    Args:
        reduce_scatter: which algorithm does the first part. The papers' is "recursive_halving"; the ring moves the same
            bytes for any p, in p-1 rounds instead of lg p.

    Cost, with the ring: p - 1 messages, n(p-1)/p bytes sent and as many reduced; and, but for root, one message more
    with the chunks of a branch of the tree.

    Raises:
        UnknownNameError: no such algorithm; on every rank.
    """
    chunks = partition(len(x), comm.size)
    find("reduce_scatter", reduce_scatter).run(x, comm, op)
    full = binomial_gather(x[chunks[comm.rank]], comm, chunks, root)
    if full is not None:
        x[:] = full
