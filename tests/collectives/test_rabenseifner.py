"""Rabenseifner's all-reduce: the picture of the docstring, counts, steps, formula."""

import numpy as np
import pytest
from anatomy import RANKS, dissect, hold, predicted, rounds, seconds

from simdist.collectives import Case
from simdist.collectives.registry import find


@pytest.mark.parametrize("p", [*RANKS, 13])
def test_results_counts_and_steps(p):
    hold("all_reduce", "rabenseifner", p)


def test_halves_then_doubles():
    run = dissect("all_reduce", "rabenseifner", [np.ones(8, np.int8)] * 4)
    far, near = [(0, 2), (1, 3), (2, 0), (3, 1)], [(0, 1), (1, 0), (2, 3), (3, 2)]
    assert rounds(run) == [
        dict.fromkeys(far, 4),
        dict.fromkeys(near, 2),
        dict.fromkeys(near, 2),
        dict.fromkeys(far, 4),
    ]


def test_guests_hand_over_everything_and_get_everything_back():
    run = dissect("all_reduce", "rabenseifner", [np.ones(8, np.int8)] * 6)
    first, *_, last = rounds(run)
    assert {pair: size for pair, size in first.items() if pair[0] in (1, 3)} == {(1, 0): 8, (3, 2): 8}
    assert last == {(0, 1): 8, (2, 3): 8}


@pytest.mark.parametrize("p", [2, 4, 8, 64])
@pytest.mark.parametrize("num_bytes", [64, 64 * 100_003])
def test_takes_as_long_as_the_formula_says(p, num_bytes):
    assert seconds("all_reduce", "rabenseifner", p, num_bytes) == pytest.approx(
        predicted("all_reduce", "rabenseifner", p, num_bytes), rel=1e-9
    )


@pytest.mark.parametrize("p", [3, 5, 6, 7, 12])
def test_with_guests_too(p):
    num_bytes = 8 * 100_003
    assert seconds("all_reduce", "rabenseifner", p, num_bytes) == pytest.approx(
        predicted("all_reduce", "rabenseifner", p, num_bytes), rel=1e-9
    )


def test_the_formula_beyond_a_power_of_two():
    # p = 6, p' = 4: (2 lg p' + 2) alpha + (2 (p'-1)/p' + 2) n beta + ((p'-1)/p' + 1) n gamma
    assert find("all_reduce", "rabenseifner").formula(Case(6, 1000)) == (6, 3500, 1750)


@pytest.mark.parametrize(("p", "num_bytes", "ms"), [(64, 10**8, 8.427), (8, 1024, 0.0301)])
def test_published_figures(p, num_bytes, ms):
    for found_s in (
        seconds("all_reduce", "rabenseifner", p, num_bytes),
        predicted("all_reduce", "rabenseifner", p, num_bytes),
    ):
        assert found_s * 1e3 == pytest.approx(ms, rel=1e-3)
