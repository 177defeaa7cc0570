"""Dissemination: the picture of the docstring, counts, steps, and that nobody goes on too early."""

import pytest
from one_port import CLUSTER, RANKS, perform, steps

from simdist.collectives import Cost, barrier, cost, formula
from simdist.comm.virtual.world import run_virtual


@pytest.mark.parametrize("p", RANKS)
def test_counts_and_steps(p):
    run = perform("barrier", "dissemination", p)
    rounds = sum(2**k < p for k in range(10))
    assert run.counted() == [(rounds, 0, 0)] * p
    assert run.seconds == rounds
    assert {cost("barrier", "dissemination", ranks=p, num_bytes=0, rank=r) for r in range(p)} == {
        Cost(rounds, rounds, 0)
    }
    assert tuple(formula("barrier", "dissemination", ranks=p, num_bytes=0)) == (rounds, 0, 0)


def test_picture():
    assert steps("barrier", "dissemination", 4, 0) == [
        {(0, 1): 0, (1, 2): 0, (2, 3): 0, (3, 0): 0},
        {(0, 2): 0, (1, 3): 0, (2, 0): 0, (3, 1): 0},
    ]


@pytest.mark.parametrize("p", [2, 3, 8, 13])
def test_nobody_goes_on_before_everybody_has_come(p):
    def program(comm, late):
        comm.compute(seconds=100 if comm.rank == late else comm.rank)
        barrier(comm)
        return comm.clock()

    for late in range(p):
        assert min(run_virtual(program, p, CLUSTER, (late,))[0]) >= 100
