"""Bruck: the pictures of the docstrings, shards of any lengths, counts, formulas."""

import numpy as np
import pytest
from anatomy import RANKS, costs, dissect, hold, predicted, rounds, seconds

from simdist.collectives import formula
from simdist.errors import ArgumentError

NAMES = [("all_gather", "bruck"), ("all_to_all", "bruck")]


@pytest.mark.parametrize("p", [*RANKS, 13])
@pytest.mark.parametrize(("operation", "name"), NAMES)
def test_results_counts_and_steps(operation, name, p):
    hold(operation, name, p)


def test_gathers_one_two_and_the_rest_of_five():
    chunks = [slice(2**r - 1, 2 ** (r + 1) - 1) for r in range(5)]  # of 1, 2, 4, 8, 16 items
    whole = np.arange(31, dtype=np.int8)
    give = [np.where((whole >= c.start) & (whole < c.stop), whole, -1) for c in chunks]
    run = dissect("all_gather", "bruck", give, chunks=chunks)
    assert rounds(run) == [
        {(r, (r - d) % 5): sum(2 ** ((r + i) % 5) for i in range(m)) for r in range(5)}
        for d, m in [(1, 1), (2, 2), (4, 1)]
    ]
    assert all((x == whole).all() for x in run.results)


@pytest.mark.parametrize("name", ["bruck", "recursive_doubling", "ring"])
@pytest.mark.parametrize("sizes", [[0, 0, 0], [3, 0, 0, 1, 0], [0, 5, 0, 0, 2, 7], [0, 0, 0, 0, 0, 0, 4]])
def test_gathers_shards_of_any_lengths(name, sizes):
    stops = np.cumsum(sizes).tolist()
    chunks = [slice(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
    whole = np.arange(stops[-1])
    give = [np.where((whole >= c.start) & (whole < c.stop), whole, -1) for c in chunks]
    for x in dissect("all_gather", name, give, chunks=chunks).results:
        assert (x == whole).all()


def test_all_to_all_moves_half_of_the_rows_a_round():
    run = dissect("all_to_all", "bruck", [np.ones((8, 3), np.int8)] * 8)
    assert rounds(run) == [{(r, (r + d) % 8): 4 * 3 for r in range(8)} for d in (1, 2, 4)]


def test_all_to_all_of_five_moves_the_rows_that_have_the_bit():
    run = dissect("all_to_all", "bruck", [np.ones((5, 3), np.int8)] * 5)
    # places 1 and 3 have the bit 1, places 2 and 3 the bit 2, place 4 the bit 4
    assert rounds(run) == [{(r, (r + d) % 5): rows * 3 for r in range(5)} for d, rows in [(1, 2), (2, 2), (4, 1)]]


@pytest.mark.parametrize("p", [2, 4, 8, 64])
@pytest.mark.parametrize("num_bytes", [64, 64 * 100_003])
@pytest.mark.parametrize(("operation", "name"), NAMES)
def test_takes_as_long_as_the_formula_says(operation, name, p, num_bytes):
    assert seconds(operation, name, p, num_bytes) == pytest.approx(predicted(operation, name, p, num_bytes), rel=1e-9)


@pytest.mark.parametrize("p", [3, 5, 7, 12])
def test_beyond_a_power_of_two(p):
    num_bytes = 420 * 100_003
    for operation, name in NAMES:
        took_s, rounds = seconds(operation, name, p, num_bytes), (p - 1).bit_length()
        assert took_s == pytest.approx(predicted(operation, name, p, num_bytes), rel=1e-9)
        assert took_s == pytest.approx(costs(operation, name, p, num_bytes)[0].sent_bytes / 25e9 + rounds * 5e-6)


@pytest.mark.parametrize("radix", [2, 3, 4, 16, 40])
@pytest.mark.parametrize("p", [*RANKS, 13])
def test_any_radix_gives_the_same(p, radix):
    hold("all_to_all", "bruck", p, radix=radix)


@pytest.mark.parametrize(("radix", "digits"), [(2, 6), (4, 3), (8, 2), (64, 1)])
def test_a_larger_radix_trades_latencies_for_bytes(radix, digits):
    """Bruck et al. 1997: (q-1) log_q p rounds, of n/q bytes each."""
    n = 64 * 1024
    found = formula("all_to_all", "bruck", ranks=64, num_bytes=n, radix=radix)
    assert found == ((radix - 1) * digits, (radix - 1) * digits * n / radix, 0)
    assert seconds("all_to_all", "bruck", 64, n, radix=radix) == pytest.approx(found.at(5e-6, 1 / 25e9), rel=1e-9)


def test_in_radix_four_rows_travel_by_digits():
    run = dissect("all_to_all", "bruck", [np.ones((6, 3), np.int8)] * 6, radix=4)
    # places 1 and 5 have the last digit 1, place 2 has 2, place 3 has 3, and places 4 and 5 the first digit 1
    assert rounds(run) == [
        {(r, (r + hop) % 6): rows * 3 for r in range(6)} for hop, rows in [(1, 2), (2, 1), (3, 1), (4, 2)]
    ]


def test_there_is_no_radix_of_one():
    with pytest.raises(ArgumentError, match="radix is 1; needs at least 2"):
        formula("all_to_all", "bruck", ranks=4, num_bytes=16, radix=1)
