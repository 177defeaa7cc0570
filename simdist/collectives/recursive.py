"""Recursive doubling and halving: lg p rounds in which partners are 1, 2, 4, … ranks apart.

    p   ranks            r   this rank           d   the distance of a round
    n   items            c23                     chunks 2 and 3

Few rounds, so best for short arrays. `cube` says which ranks exchange in which round, and what happens to the ranks
beyond a power of two.

Source: Thakur, Rabenseifner, Gropp 2005, Int. J. High Perform. Comput. Appl. 19(1), 49-66.
"""

from functools import partial

import numpy as np

from simdist.arrays import Array, Chunks, Reduction, partition
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.cube import Cube, double, fold_guest, from_guest, halve, over_rounds, to_guest
from simdist.collectives.registry import algorithm
from simdist.comm import Communicator

__all__ = [
    "recursive_doubling_all_gather",
    "recursive_doubling_all_reduce",
    "recursive_doubling_reduce_scatter",
    "recursive_halving_reduce_scatter",
]


# -- reduce-scatter -----------------------------------------------------------------------------------


def _reduce_scatter_cost(case: Case, doubling: bool = False) -> Cost:
    cube, n = Cube(case.ranks, case.rank), case.num_bytes
    mine, theirs = cube.run_bytes(cube.of_ranks(case.chunks), case.itemsize)
    rounds = len(cube.distances)
    sent, reduced = (rounds * n - mine, rounds * n - theirs) if doubling else (theirs, mine)
    each = Cost(cube.steps, rounds, sent, reduced)
    return cube.with_guest(each, up=n, down=case.chunk_bytes(cube.guest), folded=n)


def _reduce_scatter_formula(case: Case, doubling: bool = False) -> Formula:
    cube, n, chunk = Cube(case.ranks, 0), case.num_bytes, case.num_bytes / case.ranks

    def longest(d: int) -> Formula:  # the chunks of the first run; in doubling those of all but the last
        num_bytes = chunk * cube.ranks_at(cube.size - d if doubling else d)
        return Formula(1, num_bytes, num_bytes)

    return over_rounds(case, longest, up=Formula(1, n, n), down=Formula(1, chunk))


@algorithm("reduce_scatter", "recursive_halving", cost=_reduce_scatter_cost, formula=_reduce_scatter_formula)
def recursive_halving_reduce_scatter(x: Array, comm: Communicator, op: Reduction) -> None:
    """Leave in chunk r of x the reduction over all ranks; the other chunks are working space.

    Each round a rank gives away the half of its chunks that its partner's side keeps, and folds what it gets
    into the other half. Four ranks, each "what -> to whom":

        rank        0          1          2          3
        d = 2     c23 -> 2   c23 -> 3   c01 -> 0   c01 -> 1
        d = 1     c1 -> 1    c0 -> 0    c3 -> 3    c2 -> 2
        holds     c0         c1         c2         c3

    Cost per rank, p a power of two: lg p messages, n(p-1)/p bytes sent and as many reduced. Otherwise two
    rounds more, in which a guest sends n bytes to its host and gets its chunk back.

    Source: Thakur, Rabenseifner, Gropp 2005, the reduce-scatter for short arrays.
    """
    cube, chunks = Cube(comm.size, comm.rank), partition(len(x), comm.size)
    fold_guest(x, comm, op, cube)
    halve(x, comm, op, cube, cube.of_ranks(chunks))
    to_guest(x[chunks[cube.guest]], comm, cube)


@algorithm(
    "reduce_scatter",
    "recursive_doubling",
    cost=partial(_reduce_scatter_cost, doubling=True),
    formula=partial(_reduce_scatter_formula, doubling=True),
)
def recursive_doubling_reduce_scatter(x: Array, comm: Communicator, op: Reduction) -> None:
    """Leave in chunk r of x the reduction over all ranks; the other chunks are working space.

    Each round partners swap their sums of all chunks but those that only their own side still needs, and fold:

        rank        0           1           2           3
        d = 1     c123 -> 1   c023 -> 0   c013 -> 3   c012 -> 2
        d = 2     c23 -> 2    c23 -> 3    c01 -> 0    c01 -> 1
        holds     c0          c1          c2          c3

    Halving sends less in as many rounds. MPI takes this one for operations that do not commute: a fold joins runs of
    ranks that follow each other. Those of simdist commute, so either may be folded into the other.

    Cost per rank, p a power of two: lg p messages, n (lg p - (p-1)/p) bytes sent and as many reduced. Otherwise two
    rounds more, in which a guest sends n bytes to its host and gets its chunk back.

    Source: Thakur, Rabenseifner, Gropp 2005, the reduce-scatter for operations that do not commute, as in MPICH.
    """
    cube, chunks = Cube(comm.size, comm.rank), partition(len(x), comm.size)
    fold_guest(x, comm, op, cube)
    block, give, got = cube.of_ranks(chunks), scratch(x), scratch(x)
    for partner, mine, theirs in cube.rounds:
        own, other = block(*mine), block(*theirs)
        sent, received = len(x) - len(x[own]), len(x) - len(x[other])
        give[: own.start], give[own.start : sent] = x[: own.start], x[own.stop :]
        comm.sendrecv(give[:sent], partner, got[:received], partner)
        op(x[: other.start], got[: other.start])
        op(x[other.stop :], got[other.start : received])
    to_guest(x[chunks[cube.guest]], comm, cube)


# -- all-gather ---------------------------------------------------------------------------------------


def _all_gather_cost(case: Case) -> Cost:
    cube = Cube(case.ranks, case.rank)
    mine, _ = cube.run_bytes(cube.of_ranks(case.chunks), case.itemsize)
    rounds = Cost(cube.steps, len(cube.distances), mine)
    return cube.with_guest(rounds, up=case.chunk_bytes(cube.guest), down=case.num_bytes)


def _all_gather_formula(case: Case) -> Formula:
    cube, n, chunk = Cube(case.ranks, 0), case.num_bytes, case.num_bytes / case.ranks
    return over_rounds(case, lambda d: Formula(1, chunk * cube.ranks_at(d)), up=Formula(1, chunk), down=Formula(1, n))


@algorithm("all_gather", "recursive_doubling", cost=_all_gather_cost, formula=_all_gather_formula)
def recursive_doubling_all_gather(x: Array, comm: Communicator, chunks: Chunks) -> None:
    """Fill x, of which each rank holds its own chunk, with the chunks of all.

    Each round partners swap all they hold:

        rank        0          1          2          3
        d = 1     c0 -> 1    c1 -> 0    c2 -> 3    c3 -> 2
        d = 2     c01 -> 2   c01 -> 3   c23 -> 0   c23 -> 1
        holds     all        all        all        all

    Cost per rank, p a power of two: lg p messages, n(p-1)/p bytes sent. Otherwise two rounds more, in which
    a guest sends its chunk to its host and gets all n bytes back.

    Source: Thakur, Rabenseifner, Gropp 2005, the all-gather for short arrays; guests as in their all-reduce.
    """
    cube = Cube(comm.size, comm.rank)
    from_guest(x[chunks[cube.guest]], comm, cube)
    double(x, comm, cube, cube.of_ranks(chunks))
    to_guest(x, comm, cube)


# -- all-reduce ---------------------------------------------------------------------------------------


def _all_reduce_cost(case: Case) -> Cost:
    cube, n = Cube(case.ranks, case.rank), case.num_bytes
    rounds = len(cube.distances)
    return cube.with_guest(Cost(cube.steps, rounds, rounds * n, rounds * n), up=n, down=n, folded=n)


def _all_reduce_formula(case: Case) -> Formula:
    n = case.num_bytes
    return over_rounds(case, lambda _: Formula(1, n, n), up=Formula(1, n, n), down=Formula(1, n))


@algorithm("all_reduce", "recursive_doubling", cost=_all_reduce_cost, formula=_all_reduce_formula)
def recursive_doubling_all_reduce(x: Array, comm: Communicator, op: Reduction) -> None:
    """Replace x by its reduction over all ranks: partners swap the whole array, and both fold.

    The fewest rounds possible for ranks that talk to one partner at a time, but the whole array in each: for short
    arrays. Four ranks, s01 meaning the sum of ranks 0 and 1:

        rank        0          1          2          3
        d = 1     s0 -> 1    s1 -> 0    s2 -> 3    s3 -> 2
        d = 2     s01 -> 2   s01 -> 3   s23 -> 0   s23 -> 1
        holds     s0123      s0123      s0123      s0123

    Cost per rank, p a power of two: lg p messages, n lg p bytes sent and as many reduced. Otherwise two
    rounds more, in which a guest sends n bytes to its host and gets n back.

    Source: Thakur, Rabenseifner, Gropp 2005, the all-reduce for short arrays.
    """
    cube = Cube(comm.size, comm.rank)
    fold_guest(x, comm, op, cube)
    total, y = x, scratch(x)
    for d in cube.distances:
        partner = cube.partner(d)
        comm.sendrecv(total, partner, y, partner)
        if partner < comm.rank:  # both fold the higher rank's into the lower's, and so get the same bits
            total, y = y, total
        op(total, y)
    if total is not x:
        np.copyto(x, total)
    to_guest(x, comm, cube)
