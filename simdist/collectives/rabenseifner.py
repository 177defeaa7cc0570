"""Rabenseifner's all-reduce: both few rounds and few bytes.

    p   ranks         q   the largest power of two in p
    n   items         c23 chunks 2 and 3 of the q that x is cut into

Source: Rabenseifner 2004, ICCS 2004, LNCS 3036, 1-9; Thakur, Rabenseifner, Gropp 2005, Int. J. High Perform.
Comput. Appl. 19(1), 49-66.
"""

from simdist.arrays import Array, Reduction, partition
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.cube import Cube, double, fold_guest, halve, over_rounds, to_guest
from simdist.collectives.registry import algorithm
from simdist.comm import Communicator

__all__ = ["rabenseifner_all_reduce"]


def _cost(case: Case) -> Cost:
    cube, n = Cube(case.ranks, case.rank), case.num_bytes
    mine, theirs = cube.run_bytes(partition(case.num_items, cube.size).span, case.itemsize)
    # Halving sends their chunks and folds mine; doubling goes the same rounds back and sends mine.
    rounds = Cost(cube.steps + cube.num_rounds, 2 * len(cube.distances), theirs + mine, mine)
    return cube.with_guest(rounds, up=n, down=n, folded=n)


def _formula(case: Case) -> Formula:
    q, n = Cube(case.ranks, 0).size, case.num_bytes
    return over_rounds(case, lambda d: Formula(2, 2 * n * d / q, n * d / q), up=Formula(1, n, n), down=Formula(1, n))


@algorithm("all_reduce", "rabenseifner", cost=_cost, formula=_formula)
def rabenseifner_all_reduce(x: Array, comm: Communicator, op: Reduction) -> None:
    """Replace x by its reduction over all ranks: a reduce-scatter by recursive halving, then an all-gather by
    recursive doubling.

    As few bytes as the ring, in lg p rounds each way. On four ranks, each "what -> to whom":

        rank        0          1          2          3
        d = 2     c23 -> 2   c23 -> 3   c01 -> 0   c01 -> 1     halve: each folds what it gets
        d = 1     c1 -> 1    c0 -> 0    c3 -> 3    c2 -> 2
        done      c0         c1         c2         c3
        d = 1     c0 -> 1    c1 -> 0    c2 -> 3    c3 -> 2      double: each keeps what it gets
        d = 2     c01 -> 2   c01 -> 3   c23 -> 0   c23 -> 1
        holds     all        all        all        all

    Cost per rank, p a power of two: 2 lg p messages, 2n(p-1)/p bytes sent, n(p-1)/p reduced. Otherwise the
    same with q for p, and two rounds more, in which a guest sends n bytes to its host and gets n back.
    """
    cube = Cube(comm.size, comm.rank)
    block = partition(len(x), cube.size).span
    fold_guest(x, comm, op, cube)
    halve(x, comm, op, cube, block)
    double(x, comm, cube, block)
    to_guest(x, comm, cube)
