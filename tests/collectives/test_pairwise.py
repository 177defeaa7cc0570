"""Pairwise exchange and the linear all-to-all: who talks to whom in which step, counts, formulas."""

import numpy as np
import pytest
from anatomy import PAPER, RANKS, UNIT, dissect, hold, predicted, rounds, seconds

from simdist.arrays import reduction
from simdist.collectives.registry import find
from simdist.comm.virtual.world import run_virtual

PAIRWISE = [("reduce_scatter", "pairwise"), ("all_to_all", "pairwise")]


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("operation", "name"), [*PAIRWISE, ("all_to_all", "linear")])
def test_results_counts_and_steps(operation, name, p):
    hold(operation, name, p)


def test_reduce_scatter_sends_each_chunk_straight_to_its_owner():
    # Ten items in chunks of 3, 3, 2, 2.
    run = dissect("reduce_scatter", "pairwise", [np.ones(10, np.int8)] * 4)
    chunk = [3, 3, 2, 2]
    assert rounds(run) == [{(r, (r + k) % 4): chunk[(r + k) % 4] for r in range(4)} for k in (1, 2, 3)]


def test_reduce_scatter_leaves_the_others_chunks_alone():
    def program(comm):
        x = np.arange(10)
        find("reduce_scatter", "pairwise").run(x, comm, reduction("sum"))
        return x.tolist()

    assert run_virtual(program, 3, UNIT)[0][1] == [0, 1, 2, 3, 12, 15, 18, 7, 8, 9]


def test_all_to_all_meets_one_partner_a_step():
    run = dissect("all_to_all", "pairwise", [np.ones((4, 5), np.int8)] * 4)
    assert rounds(run) == [{(r, (r + k) % 4): 5 for r in range(4)} for k in (1, 2, 3)]


def test_linear_sends_all_at_once():
    run = dissect("all_to_all", "linear", [np.ones((4, 5), np.int8)] * 4)
    assert rounds(run) == [{(i, j): 5 for i in range(4) for j in range(4) if i != j}]


@pytest.mark.parametrize("p", [2, 3, 8, 15])
@pytest.mark.parametrize("num_bytes", [120, 120 * 100_003])
@pytest.mark.parametrize(("operation", "name"), PAIRWISE)
def test_takes_as_long_as_the_formula_says(operation, name, p, num_bytes):
    assert seconds(operation, name, p, num_bytes) == pytest.approx(predicted(operation, name, p, num_bytes), rel=1e-9)


@pytest.mark.parametrize("num_bytes", [8 * 16, 8 * 10**7])
def test_linear_saves_all_latencies_but_one(num_bytes):
    saved_s = predicted("all_to_all", "linear", 8, num_bytes) - seconds("all_to_all", "linear", 8, num_bytes)
    assert saved_s == pytest.approx(6 * PAPER.inside.latency_s, rel=1e-9)
