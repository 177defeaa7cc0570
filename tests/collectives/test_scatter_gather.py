"""Scatter and gather in place of a tree: the pictures of the docstrings, results, counts, steps, formulas."""

import numpy as np
import pytest
from one_port import CLUSTER, PAPER, RANKS, hold, predicted, seconds, steps

import simdist as sd
from simdist.collectives import algorithms, broadcast, cost, formula
from simdist.collectives.registry import find
from simdist.comm.virtual.world import run_virtual
from simdist.errors import UnknownNameError

ALGORITHMS = [("broadcast", "scatter_all_gather"), ("reduce", "reduce_scatter_gather")]


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("operation", "name"), ALGORITHMS)
def test_results_counts_and_steps(operation, name, p):
    hold(operation, name, p)


@pytest.mark.parametrize("p", [3, 4, 6])
@pytest.mark.parametrize(("operation", "name"), ALGORITHMS)
def test_messages_that_wait_for_their_receivers(operation, name, p):
    hold(operation, name, p, cluster=CLUSTER.with_(eager_bytes=0))


def test_pictures():
    ring = {(r, (r + 1) % 4): 3 for r in range(4)}
    assert steps("broadcast", "scatter_all_gather", 4, 12) == [{(0, 2): 6}, {(0, 1): 3, (2, 3): 3}, ring, ring, ring]
    assert steps("reduce", "reduce_scatter_gather", 4, 12) == [ring, ring, ring, {(1, 0): 3, (3, 2): 3}, {(2, 0): 6}]


@pytest.mark.parametrize("name", algorithms("broadcast"))
def test_root_may_give_an_array_that_must_not_be_written_to(name):
    def program(comm):
        x = np.arange(10) if comm.rank == 1 else np.zeros(10, int)
        x.flags.writeable = comm.rank != 1
        find("broadcast", name).run(x, comm.shadow, 1)
        return x

    for x in run_virtual(program, 3, CLUSTER)[0]:
        assert x.tolist() == list(range(10))


@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_formulas(p):
    lg, n, share = (0, 0, 1, 2, 2, 3, 3, 3, 3)[p], 1000, 1000 * (p - 1) / p
    assert tuple(formula("broadcast", "scatter_all_gather", ranks=p, num_bytes=n)) == (lg + p - 1, 2 * share, 0)
    assert tuple(formula("reduce", "reduce_scatter_gather", ranks=p, num_bytes=n)) == (lg + p - 1, 2 * share, share)


OTHERS = [
    *(("broadcast", "scatter_all_gather", {"all_gather": name}) for name in ("recursive_doubling", "bruck")),
    *(("reduce", "reduce_scatter_gather", {"reduce_scatter": name}) for name in ("recursive_halving", "pairwise")),
]


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("p", [1, 3, 4, 7, 8])
@pytest.mark.parametrize(("operation", "name", "option"), OTHERS)
def test_other_algorithms_inside(operation, name, option, p):
    hold(operation, name, p, exact=p & (p - 1) == 0, **option)  # of others who has no guest begins sooner


@pytest.mark.parametrize("p", [1, 2, 8, 64])
@pytest.mark.parametrize(("operation", "name", "option"), OTHERS[::2])
def test_the_papers_formulas(operation, name, option, p):
    """Thakur, Rabenseifner, Gropp 2005: 2 lg p alpha + 2n(p-1)/p beta, and n(p-1)/p gamma where it is reduced."""
    lg, n = p.bit_length() - 1, 64_000
    share = n * (p - 1) / p
    said = formula(operation, name, ranks=p, num_bytes=n, **option)
    assert tuple(said) == (2 * lg, 2 * share, share * (operation == "reduce"))
    assert seconds(operation, name, p, n, **option) == pytest.approx(said.on(PAPER, p), rel=1e-9)


def test_an_algorithm_that_there_is_not():
    def program(comm):
        broadcast(np.zeros(4), comm, algorithm="scatter_all_gather", all_gather="rings")

    with pytest.raises(UnknownNameError, match="unknown all_gather algorithm 'rings'"):
        sd.run(program, 3)


@pytest.mark.parametrize("p", [2, 8, 64])
@pytest.mark.parametrize("num_bytes", [64, 64 * 100_003])
@pytest.mark.parametrize(("operation", "name"), ALGORITHMS)
def test_takes_as_long_as_the_formula_says(operation, name, p, num_bytes):
    assert seconds(operation, name, p, num_bytes) == pytest.approx(predicted(operation, name, p, num_bytes), rel=1e-9)


@pytest.mark.parametrize("p", [5, 16, 64])
def test_no_rank_sends_the_array_more_than_twice(p):
    for operation, name in ALGORITHMS:
        sent = [cost(operation, name, ranks=p, num_bytes=1000 * p, rank=r).sent_bytes for r in range(p)]
        assert max(sent) <= 2 * 1000 * (p - 1)
