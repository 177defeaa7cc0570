"""An all-reduce of one's own, and with it the whole of simdist: what is registered before `main`, all verbs know.

python -m simdist.examples.own_algorithm verify all_reduce --algorithms swing --ranks 1 2 4 8
python -m simdist.examples.own_algorithm plot collective all_reduce swing --ranks 8
python -m simdist.examples.own_algorithm bench all_reduce --world virtual --cluster h100 --ranks 8
python -m simdist.examples.own_algorithm train --ranks 4 --algorithm swing
"""

import sys
from math import inf

import numpy as np

from simdist.arrays import Array, Reduction
from simdist.cli import main
from simdist.collectives import Case, Cost, Formula, algorithm
from simdist.comm import Communicator
from simdist.errors import ArgumentError

__all__ = ["swing"]


def _steps(p: int) -> int:
    """lg p."""
    if p & (p - 1):
        raise ArgumentError(f"swing on {p} ranks; needs a power of two")
    return p.bit_length() - 1


def _cost(case: Case) -> Cost:
    steps = _steps(case.ranks)
    return Cost(steps, steps, sent_bytes=steps * case.num_bytes, reduced_bytes=steps * case.num_bytes)


def _formula(case: Case) -> Formula:
    p, n = case.ranks, case.num_bytes
    return Formula(inf, inf) if p & (p - 1) else Formula(_steps(p), _steps(p) * n, _steps(p) * n)


@algorithm("all_reduce", "swing", cost=_cost, formula=_formula)
def swing(x: Array, comm: Communicator, op: Reduction) -> None:
    """Replace x by its reduction over all ranks: each step with another rank, now to one side and now to the other.

        rank        0  1  2  3  4  5  6  7        distance of step s: 1, 1, 3, 5, 11, … = (1 - (-2)**(s+1)) / 3, whose
        step 0      0--1  2--3  4--5  6--7        sign swings; even ranks go that way, odd ones the other
        step 1      --0  1--2  3--4  5--6  7--
        step 2      0--3  1--6  2--5  4--7

    Recursive doubling with other partners: on a ring or a torus of links they are nearer.

    Cost per rank: lg p messages, n lg p bytes sent and as many reduced.

    Source: De Sensi, Bonato, Saam, Hoefler 2024, NSDI, arXiv 2401.09356: Swing, the version of least latency.
    """
    p, r = comm.size, comm.rank
    incoming = np.empty_like(x)
    for step in range(_steps(p)):
        distance = (1 - (-2) ** (step + 1)) // 3
        peer = (r + distance if r % 2 == 0 else r - distance) % p
        comm.sendrecv(x, peer, incoming, peer)
        op.fold(x, incoming)


if __name__ == "__main__":
    sys.exit(main())
