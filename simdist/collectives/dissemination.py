"""Barrier: no rank goes on before all have come.

Source: Hensgen, Finkel, Manber 1988, Int. J. Parallel Programming 17(1), 1-17: dissemination.
"""

from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.registry import algorithm
from simdist.collectives.rounds import distances
from simdist.comm import Communicator

__all__ = ["dissemination_barrier"]


def _cost(case: Case) -> Cost:
    rounds = len(distances(case.ranks))
    return Cost(rounds, rounds, 0)


def _formula(case: Case) -> Formula:
    return Formula(len(distances(case.ranks)), 0)


@algorithm("barrier", "dissemination", cost=_cost, formula=_formula)
def dissemination_barrier(comm: Communicator) -> None:
    """Return when all ranks have called this: the number of ranks that a rank has heard of doubles each round.

        rank        0        1        2        3
        step 1     -> 1     -> 2     -> 3     -> 0          0 knows of 3 0
        step 2     -> 2     -> 3     -> 0     -> 1          0 knows of 1 2 3 0

    Cost per rank: ceil(lg p) empty messages.
    """
    comm.barrier()
