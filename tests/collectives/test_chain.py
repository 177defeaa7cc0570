"""Chain: the picture of the docstring, results, counts, steps, formula, how many segments are best."""

import pytest
from one_port import CLUSTER, PAPER, RANKS, hold, predicted, seconds, steps

from simdist.collectives import cost, formula
from simdist.collectives.segments import SEGMENT_BYTES
from simdist.errors import ArgumentError


@pytest.mark.slow(but=5)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("segment_bytes", [1, 16, 24, SEGMENT_BYTES])
def test_results_counts_and_steps(p, segment_bytes):
    hold("broadcast", "chain", p, segment_bytes=segment_bytes)


@pytest.mark.parametrize("p", [2, 3, 5])
def test_messages_that_wait_for_their_receivers(p):
    hold("broadcast", "chain", p, segment_bytes=16, cluster=CLUSTER.with_(eager_bytes=0))


def test_picture():
    assert steps("broadcast", "chain", 4, 6, segment_bytes=2) == [
        {(0, 1): 2},
        {(0, 1): 2, (1, 2): 2},
        {(0, 1): 2, (1, 2): 2, (2, 3): 2},
        {(1, 2): 2, (2, 3): 2},
        {(2, 3): 2},
    ]


def test_the_line_starts_at_root():
    assert steps("broadcast", "chain", 4, 6, root=2) == [{(2, 3): 6}, {(3, 0): 6}, {(0, 1): 6}]


def test_segments_are_as_equal_as_can_be():
    assert steps("broadcast", "chain", 2, 10, segment_bytes=4) == [{(0, 1): 4}, {(0, 1): 3}, {(0, 1): 3}]


def test_a_segment_has_some_length():
    with pytest.raises(ArgumentError, match="segment_bytes is 0"):
        steps("broadcast", "chain", 2, 10, segment_bytes=0)
    with pytest.raises(ArgumentError, match="segment_bytes is 0"):
        cost("broadcast", "chain", ranks=2, num_bytes=10, segment_bytes=0)


@pytest.mark.parametrize(("p", "s"), [(1, 5), (2, 1), (2, 5), (8, 1), (8, 5)])
def test_formula(p, s):
    steps = s + p - 2 if p > 1 else 0
    found = formula("broadcast", "chain", ranks=p, num_bytes=1000, segment_bytes=1000 // s)
    assert tuple(found) == (steps, steps * 1000 / s, 0)


@pytest.mark.parametrize("p", [2, 3, 8, 64])
def test_takes_as_long_as_the_formula_says(p):
    # One segment: exactly. More: a rank need not wait for one to arrive before it sends the next, so
    # only the first pays latencies, and the formula, in which every step does, is above by s - 1 of them.
    assert seconds("broadcast", "chain", p, 1000) == pytest.approx(predicted("broadcast", "chain", p, 1000), rel=1e-9)
    n, s = 50 * SEGMENT_BYTES, 50
    latencies_s = (s - 1) * PAPER.inside.latency_s
    assert seconds("broadcast", "chain", p, n) == pytest.approx(
        predicted("broadcast", "chain", p, n) - latencies_s, rel=1e-9
    )


@pytest.mark.parametrize("p", [8, 64])
def test_the_best_size_of_segments(p):
    n, link = 10**8, PAPER.inside
    best = round((n * link.latency_s * link.bytes_per_s / (p - 2)) ** 0.5)  # sqrt(n alpha / ((p - 2) beta))
    times = [predicted("broadcast", "chain", p, n, segment_bytes=k) for k in (best // 2, best, 2 * best)]
    assert times[1] < times[0]
    assert times[1] < times[2]
    assert times[1] == pytest.approx((((p - 2) * link.latency_s) ** 0.5 + (n / link.bytes_per_s) ** 0.5) ** 2, rel=1e-3)
