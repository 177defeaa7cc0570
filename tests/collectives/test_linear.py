"""Linear: the pictures of the docstrings, results, counts, steps, formulas."""

import numpy as np
import pytest
from one_port import RANKS, hold, perform, predicted, seconds, steps

from simdist.arrays import partition, reduction
from simdist.collectives import formula

ALGORITHMS = [(operation, "linear") for operation in ("broadcast", "reduce", "scatter", "gather")]


@pytest.mark.slow(but=6)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("operation", "name"), [*ALGORITHMS, ("all_reduce", "naive")])
def test_results_counts_and_steps(operation, name, p):
    hold(operation, name, p)


@pytest.mark.parametrize("root", range(4))
def test_root_deals_with_the_others_one_by_one(root):
    others, sizes = [rank for rank in range(4) if rank != root], [3, 3, 2, 2]  # of the chunks of ten items
    assert steps("broadcast", "linear", 4, 10, root) == [{(root, rank): 10} for rank in others]
    assert steps("scatter", "linear", 4, 10, root) == [{(root, rank): sizes[rank]} for rank in others]
    # The others send at once, but root takes one at a time: there a step is when root is free.
    assert steps("reduce", "linear", 4, 10, root) == [{(rank, root): 10 for rank in others}]
    assert steps("gather", "linear", 4, 10, root) == [{(rank, root): sizes[rank] for rank in others}]


def test_root_folds_in_the_order_of_ranks():
    x = np.array([[1.0], [1e16], [-1e16], [2.0]])
    run = perform("reduce", "linear", 4, x, [reduction("sum")] * 4, [3] * 4)
    assert run.results[3].item() == ((2.0 + 1.0) + 1e16) - 1e16 == 4.0  # near 1e16 only even numbers exist


def test_gathers_chunks_of_a_partition():
    shards, chunks = [np.full(n, n) for n in (4, 3, 3)], partition(10, 3)
    run = perform("gather", "linear", 3, shards, [chunks] * 3, [1] * 3)
    assert run.results[1].tolist() == [4] * 4 + [3] * 6


def test_everyone_sends_to_everyone():
    assert steps("all_reduce", "naive", 4, 6) == [{(r, (r + k) % 4): 6 for r in range(4)} for k in (1, 2, 3)]


def test_everyone_folds_in_the_order_of_ranks():
    x = np.array([[1e16], [1.0], [-1e16], [3.0]])
    run = perform("all_reduce", "naive", 4, x, [reduction("sum")] * 4)
    assert [result.item() for result in run.results] == [((1e16 + 1.0) - 1e16) + 3.0] * 4  # the 1 is lost


@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_formulas(p):
    n, share = 1000.0, 1000 * (p - 1) / p
    found = {operation: tuple(formula(operation, name, ranks=p, num_bytes=1000)) for operation, name in ALGORITHMS}
    assert found == {
        "broadcast": (p - 1, (p - 1) * n, 0),
        "reduce": (p - 1, (p - 1) * n, (p - 1) * n),
        "scatter": (p - 1, share, 0),
        "gather": (p - 1, share, 0),
    }
    assert tuple(formula("all_reduce", "naive", ranks=p, num_bytes=1000)) == (p - 1, (p - 1) * n, (p - 1) * n)


@pytest.mark.parametrize("p", [2, 8, 15])
def test_takes_as_long_as_the_formula_says(p):
    assert seconds("all_reduce", "naive", p, 10**6) == pytest.approx(predicted("all_reduce", "naive", p, 10**6))
    # By the others root's messages overlap: it pays their bytes, but only one latency, and folds as they come.
    for operation, name in ALGORITHMS:
        latencies_s = (p - 2) * 5e-6
        assert predicted(operation, name, p, 10**8) - latencies_s <= 1.001 * seconds(operation, name, p, 10**8)
        assert seconds(operation, name, p, 10**8) <= predicted(operation, name, p, 10**8) * 1.001
