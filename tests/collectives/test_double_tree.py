"""Double binary tree: the picture of the docstring, results, counts, steps, formula."""

import pytest
from one_port import CLUSTER, PAPER, RANKS, hold, hollow, perform, predicted, seconds, steps

from simdist.collectives import Case, cost, formula
from simdist.collectives.double_tree import SEGMENT_BYTES
from simdist.collectives.registry import find
from simdist.errors import ArgumentError

RENDEZVOUS = CLUSTER.with_(eager_bytes=0)
"""Here a message waits until its receiver is ready for it, so nobody runs ahead of the plan of steps."""


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("segment_bytes", [1, 8, 24, SEGMENT_BYTES])
def test_results_and_counts(p, segment_bytes):
    # Not in as many seconds as steps: where messages need not wait for their receivers, leaves run ahead, and
    # what they send is in the way of others. See below.
    hold("all_reduce", "double_tree", p, exact=False, segment_bytes=segment_bytes)
    hold("all_reduce", "double_tree", p, exact=False, segment_bytes=segment_bytes, cluster=RENDEZVOUS)


@pytest.mark.parametrize("s", [1, 2, 3, 8])
def test_keeps_to_the_plan_of_steps(s):
    for p in (*range(2, 34), 64):
        give = hollow("all_reduce", p, 2 * s)
        run = perform("all_reduce", "double_tree", p, *give, segment_bytes=1, cluster=RENDEZVOUS)
        planned = cost("all_reduce", "double_tree", ranks=p, num_bytes=2 * s, segment_bytes=1).steps
        # Segments follow each other every second step because ranks have two edges to serve. Two ranks have only
        # one each way. And an edge that is not of the kind that is due next waits for a step, in the plan alone.
        early = 2 * (s - 1) if p == 2 else 2
        assert planned - early <= run.seconds <= planned


def test_picture():
    assert steps("all_reduce", "double_tree", 4, 10) == [
        {(0, 1): 5, (3, 2): 5},
        {(1, 2): 5, (2, 1): 5},
        {(1, 3): 5, (2, 0): 5},
        {(0, 2): 5, (3, 1): 5},
        {(1, 2): 5, (2, 1): 5},
        {(1, 0): 5, (2, 3): 5},
    ]


def test_each_tree_moves_its_own_half():
    # Eleven bytes in halves of 6 and 5: what tree 0 moves is 6 long.
    run = perform("all_reduce", "double_tree", 7, *hollow("all_reduce", 7, 11))
    by_half = {n: {(s.rank, s.peer) for s in run.sends if s.bytes == n} for n in (6, 5)}
    edges = {6: [(1, 0), (1, 2), (5, 4), (5, 6), (3, 1), (3, 5)], 5: [(2, 1), (2, 3), (6, 5), (6, 0), (4, 2), (4, 6)]}
    assert by_half == {n: {edge for pair in each for edge in (pair, pair[::-1])} for n, each in edges.items()}


@pytest.mark.parametrize("p", [2, 3, 8, 100])
def test_no_rank_sends_more_than_twice_the_array(p):
    costs = [cost("all_reduce", "double_tree", ranks=p, num_bytes=1000, rank=r) for r in range(p)]
    assert max(c.sent_bytes for c in costs) <= 2000
    assert max(c.reduced_bytes for c in costs) <= 1000
    assert sum(c.reduced_bytes for c in costs) == (p - 1) * 1000
    assert sum(c.sent_bytes for c in costs) == 2 * (p - 1) * 1000


@pytest.mark.parametrize(("p", "lg"), [(1, 0), (2, 1), (5, 3), (8, 3)])
@pytest.mark.parametrize("s", [1, 5])
def test_formula(p, lg, s):
    steps = 2 * (2 * lg + 2 * (s - 1)) if p > 1 else 0
    found = formula("all_reduce", "double_tree", ranks=p, num_bytes=1000, segment_bytes=500 // s)
    assert tuple(found) == (steps, steps * 500 / s, steps / 2 * 500 / s)


@pytest.mark.parametrize("p", [1, 2, 3, 8, 33, 100, 1000])
@pytest.mark.parametrize("s", [1, 7])
def test_the_formula_counts_at_least_as_many_steps(p, s):
    case = Case(p, 2 * s)
    algorithm = find("all_reduce", "double_tree")
    assert algorithm.cost(case, segment_bytes=1).steps <= algorithm.formula(case, segment_bytes=1).latencies


@pytest.mark.parametrize("p", [8, 64])
def test_long_arrays_take_as_long_as_the_formula_says(p):
    n = 3 * 10**7
    found_s, formula_s = (time("all_reduce", "double_tree", p, n) for time in (seconds, predicted))
    assert found_s == pytest.approx(formula_s, rel=0.02)


@pytest.mark.parametrize("p", [8, 64])
def test_with_segments_of_the_best_size_it_comes_near_the_lower_bound(p):
    n = 10**8
    best = round((n / 2 * PAPER.inside.latency_s * PAPER.inside.bytes_per_s / (p - 1).bit_length()) ** 0.5)
    found_s = seconds("all_reduce", "double_tree", p, n, segment_bytes=best)
    assert 2 * n / PAPER.inside.bytes_per_s < found_s < 1.4 * 2 * n / PAPER.inside.bytes_per_s


@pytest.mark.parametrize("p", [16, 64])
def test_the_papers_time_with_segments_of_the_best_size(p):
    n, lg, alpha, beta = 10**8, p.bit_length() - 1, 5e-6, 1 / 25e9
    best = round((n * alpha / (2 * beta * lg)) ** 0.5)
    found_s = formula("all_reduce", "double_tree", ranks=p, num_bytes=n, segment_bytes=best).at(alpha, beta)
    each_way_s = n * beta + 2 * lg * alpha + (8 * n * alpha * beta * lg) ** 0.5
    last_s = 2 * (alpha + best * beta)  # two steps each way that the paper counts beyond the last segment
    assert found_s == pytest.approx(2 * (each_way_s - last_s), rel=1e-3)


def test_short_arrays_on_many_ranks_are_done_sooner_than_by_the_ring():
    for n in (1000, 10**6):
        assert seconds("all_reduce", "double_tree", 64, n) < 0.6 * predicted("all_reduce", "ring", 64, n)


def test_a_segment_has_some_length():
    with pytest.raises(ArgumentError, match="segment_bytes is 0"):
        steps("all_reduce", "double_tree", 2, 10, segment_bytes=0)
