"""Cutting layers into stages, against all ways to do it."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import split


def all_ways(costs, stages):
    n = len(costs)
    for cuts in combinations(range(1, n), stages - 1):
        bounds = [0, *cuts, n]
        yield [sum(costs[a:b]) for a, b in pairwise(bounds)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_the_most_costly_stage_costs_the_least(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    cut = split(costs, stages)
    assert [i for part in cut for i in range(part.start, part.stop)] == list(range(len(costs)))
    assert all(part.stop > part.start for part in cut)
    own = [sum(costs[part]) for part in cut]
    least = min(max(way) for way in all_ways(costs, stages))
    assert max(own) == least
    assert sum(x * x for x in own) == min(
        sum(x * x for x in way) for way in all_ways(costs, stages) if max(way) == least
    )


def test_the_most_costly_stage_counts_before_evenness():
    """6, 2, 3 has the smaller sum of squares, 49 against 51."""
    assert [part.start for part in split([1, 5, 2, 3], 3)] == [0, 1, 2]


def test_equal_layers_are_shared_out_evenly():
    assert [part.stop - part.start for part in split([1.0] * 16, 8)] == [2] * 8
    assert sorted(part.stop - part.start for part in split([0.1] * 14, 4)) == [3, 3, 4, 4]


@pytest.mark.parametrize("tenths", [[7, 1, 3, 2, 3, 2, 7, 2, 3, 1], [2, 1, 7, 3, 1, 2, 7, 7, 1, 1, 7]])
def test_sums_that_differ_by_their_rounding_are_equal(tenths):
    found, exact = ([sum(tenths[part]) for part in split(costs, 3)] for costs in ([c / 10 for c in tenths], tenths))
    assert sorted(found) == sorted(exact)


def test_many_layers_and_stages():
    costs = np.random.default_rng(0).uniform(1, 2, 130).tolist()
    own = [sum(costs[part]) for part in split(costs, 64)]
    assert max(own) < 1.6 * sum(costs) / 64


@pytest.mark.parametrize(("costs", "stages"), [([1.0], 2), ([], 1), ([1.0], 0), ([1.0, -1.0], 1)])
def test_what_cannot_be(costs, stages):
    with pytest.raises(ArgumentError, match="needs at least"):
        split(costs, stages)
