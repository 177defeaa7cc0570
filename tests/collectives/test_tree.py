"""Binomial trees: the pictures of the docstrings, results, counts, steps, formulas."""

from itertools import pairwise

import numpy as np
import pytest
from one_port import CLUSTER, RANKS, hold, perform, predicted, seconds, steps

from simdist.collectives import cost, formula

ROOTED = [(operation, "binomial") for operation in ("broadcast", "reduce", "scatter", "gather")]
ALGORITHMS = [*ROOTED, ("all_reduce", "tree")]


@pytest.mark.slow(but=6)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("operation", "name"), ALGORITHMS)
def test_results_counts_and_steps(operation, name, p):
    hold(operation, name, p)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("p", [3, 6, 8])
@pytest.mark.parametrize(("operation", "name"), ALGORITHMS)
def test_messages_that_wait_for_their_receivers(operation, name, p):
    hold(operation, name, p, cluster=CLUSTER.with_(eager_bytes=0))


def test_pictures_of_broadcast_and_reduce():
    down = [{(0, 4): 5}, {(0, 2): 5, (4, 6): 5}, {(0, 1): 5, (2, 3): 5, (4, 5): 5, (6, 7): 5}]
    up = [{(dst, src): n for (src, dst), n in step.items()} for step in reversed(down)]
    assert steps("broadcast", "binomial", 8, 5) == down
    assert steps("reduce", "binomial", 8, 5) == up
    assert steps("all_reduce", "tree", 8, 5) == up + down


def test_pictures_of_scatter_and_gather():
    down = [{(0, 4): 4}, {(0, 2): 2, (4, 6): 2}, {(0, 1): 1, (2, 3): 1, (4, 5): 1, (6, 7): 1}]
    up = [{(dst, src): n for (src, dst), n in step.items()} for step in reversed(down)]
    assert steps("scatter", "binomial", 8, 8) == down
    assert steps("gather", "binomial", 8, 8) == up


def test_from_another_root_the_tree_is_turned():
    # Ranks 4 5 0 1 2 3 stand at places 0 to 5; ten bytes make chunks of 2 2 2 2 1 1.
    assert steps("broadcast", "binomial", 6, 10, root=4) == [
        {(4, 2): 10},
        {(4, 0): 10, (2, 3): 10},
        {(4, 5): 10, (0, 1): 10},
    ]
    assert steps("scatter", "binomial", 6, 10, root=4) == [{(4, 2): 4}, {(4, 0): 4, (2, 3): 2}, {(4, 5): 1, (0, 1): 2}]


@pytest.mark.parametrize("lengths", [[1, 2, 4, 8, 16], [0, 5, 0, 0, 1], [3, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
@pytest.mark.parametrize("root", range(5))
@pytest.mark.parametrize("name", ["linear", "binomial"])
def test_chunks_of_any_lengths(name, root, lengths):
    ends = np.cumsum([0, *lengths]).tolist()
    chunks = [slice(*pair) for pair in pairwise(ends)]
    whole = np.arange(ends[-1]) ** 2
    full = [whole if r == root else whole[:0] for r in range(5)]
    shards = perform("scatter", name, 5, full, [chunks] * 5, [root] * 5).results
    for shard, chunk in zip(shards, chunks, strict=True):
        assert (shard == whole[chunk]).all()
    joined = perform("gather", name, 5, shards, [chunks] * 5, [root] * 5).results
    assert (joined[root] == whole).all()
    assert [x is None for x in joined] == [r != root for r in range(5)]


@pytest.mark.parametrize("name", ["linear", "binomial"])
def test_results_are_new_arrays(name):
    whole, chunks = np.arange(6), [slice(0, 3), slice(3, 6)]
    for shard in perform("scatter", name, 2, [whole, whole[:0]], [chunks] * 2, [0, 0]).results:
        assert shard.base is None  # so it keeps nothing alive but itself
        assert shard.flags.writeable
    joined = perform("gather", name, 2, [whole[:3], whole[3:]], [chunks] * 2, [0, 0]).results[0]
    assert joined.base is None


@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_formulas(p):
    lg, n, share = (0, 0, 1, 2, 2, 3, 3, 3, 3)[p], 1000, 1000 * (p - 1) / p
    found = {operation: tuple(formula(operation, name, ranks=p, num_bytes=n)) for operation, name in ALGORITHMS}
    assert found == {
        "broadcast": (lg, lg * n, 0),
        "reduce": (lg, lg * n, lg * n),
        "scatter": (lg, share, 0),
        "gather": (lg, share, 0),
        "all_reduce": (2 * lg, 2 * lg * n, lg * n),
    }


@pytest.mark.parametrize("p", [2, 3, 8, 15, 64])
@pytest.mark.parametrize("num_bytes", [960, 960 * 10_007])  # multiples of all p
@pytest.mark.parametrize(("operation", "name"), ALGORITHMS)
def test_takes_as_long_as_the_formula_says(operation, name, p, num_bytes):
    # A tree of a number of ranks that is no power of two has fewer messages to wait for in some rounds.
    found_s, formula_s = seconds(operation, name, p, num_bytes), predicted(operation, name, p, num_bytes)
    assert found_s == pytest.approx(formula_s, rel=1e-9) if p in (2, 8, 64) else found_s <= formula_s * (1 + 1e-9)


def test_what_a_rank_sends_grows_with_its_branch():
    sent = [cost("scatter", "binomial", ranks=8, num_bytes=800, rank=r).sent_bytes for r in range(8)]
    assert sent == [700, 0, 100, 0, 300, 0, 100, 0]
    sent = [cost("gather", "binomial", ranks=8, num_bytes=800, rank=r).sent_bytes for r in range(8)]
    assert sent == [0, 100, 200, 100, 400, 100, 200, 100]
