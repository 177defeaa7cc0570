"""Recursive doubling and halving: the pictures of the docstrings, counts, steps, formulas."""

import numpy as np
import pytest
from anatomy import RANKS, dissect, hold, predicted, rounds, seconds

from simdist.collectives import formula
from simdist.collectives.cube import Cube

NAMES = [
    ("reduce_scatter", "recursive_halving"),
    ("reduce_scatter", "recursive_doubling"),
    ("all_gather", "recursive_doubling"),
    ("all_reduce", "recursive_doubling"),
]


def overlap(p):
    """1 where the rounds of guests overlap with the others: the run ends a second before its steps are over.

    A message passes the cube from a host at one place to a host at another in as many rounds as their
    places differ in bits. So a guest waits for the first guests' contribution through all lg q rounds only
    where two opposite places both have guests, that is where more than half of the places have.
    """
    q = Cube(p, 0).size
    return int(0 < p - q <= q // 2)


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("operation", "name"), NAMES)
def test_results_counts_and_steps(operation, name, p):
    hold(operation, name, p, early=overlap(p))


@pytest.mark.parametrize("p", [11, 13, 14, 15])
@pytest.mark.parametrize(("operation", "name"), NAMES)
def test_many_guests(operation, name, p):
    hold(operation, name, p, early=overlap(p))


def test_halving_sends_half_then_a_quarter():
    run = dissect("reduce_scatter", "recursive_halving", [np.ones(4, np.int8)] * 4)
    assert rounds(run) == [{(0, 2): 2, (1, 3): 2, (2, 0): 2, (3, 1): 2}, {(0, 1): 1, (1, 0): 1, (2, 3): 1, (3, 2): 1}]


def test_doubling_sends_all_but_what_its_own_side_needs():
    run = dissect("reduce_scatter", "recursive_doubling", [np.ones(4, np.int8)] * 4)
    assert rounds(run) == [{(0, 1): 3, (1, 0): 3, (2, 3): 3, (3, 2): 3}, {(0, 2): 2, (1, 3): 2, (2, 0): 2, (3, 1): 2}]


@pytest.mark.parametrize(("p", "rounds"), [(2, 1), (8, 3), (64, 6)])
def test_doubling_to_scatter_is_the_formula_of_mpich(p, rounds):
    """lgp.alpha + n.(lgp-(p-1)/p).beta + n.(lgp-(p-1)/p).gamma"""
    found = formula("reduce_scatter", "recursive_doubling", ranks=p, num_bytes=64 * 1000)
    volume = 64 * 1000 * (rounds - (p - 1) / p)
    assert found == (rounds, volume, volume)


@pytest.mark.parametrize("p", [3, 5, 6, 7, 12, 14, 15])
def test_doubling_to_scatter_with_guests_counts_the_longest_message_of_each_round(p):
    """It once took the last d places for d ranks: they may be more, whose chunks are not sent."""
    longest = {}  # by the distance of a round; 0 is that from guests to hosts, who send back a chunk at the end
    for send in dissect("reduce_scatter", "recursive_doubling", [np.ones(p, np.int8)] * p).sends:
        d = Cube(p, send.rank).place ^ Cube(p, send.peer).place
        longest[d] = max(longest.get(d, 0), send.bytes)
    found = formula("reduce_scatter", "recursive_doubling", ranks=p, num_bytes=p)
    assert found == (len(longest) + 1, sum(longest.values()) + 1, sum(longest.values()))


def test_doubling_sends_what_is_known_so_far():
    # Chunks of 1, 2, 4 and 8 items: the length of a message tells which chunks are in it.
    chunks = [slice(0, 1), slice(1, 3), slice(3, 7), slice(7, 15)]
    whole = np.arange(15, dtype=np.int8)
    give = [np.where((whole >= c.start) & (whole < c.stop), whole, -1) for c in chunks]
    run = dissect("all_gather", "recursive_doubling", give, chunks=chunks)
    assert rounds(run) == [
        {(0, 1): 1, (1, 0): 2, (2, 3): 4, (3, 2): 8},
        {(0, 2): 1 + 2, (1, 3): 1 + 2, (2, 0): 4 + 8, (3, 1): 4 + 8},
    ]
    assert all((x == whole).all() for x in run.results)


def test_a_guest_speaks_through_its_host():
    run = dissect("all_reduce", "recursive_doubling", [np.ones(1, np.int8)] * 7)
    guests = {(s.rank, s.peer) for s in run.sends if {s.rank, s.peer} & {1, 3, 5}}
    assert guests == {(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)}
    assert [s.start_s for s in run.sends if s.rank in (1, 3, 5)] == [0.0] * 3
    assert run.seconds == 4


@pytest.mark.parametrize("p", [2, 3, 7, 8])
@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("max", [-0.0, 0.0]),  # equal, but not the same bits
        ("sum", np.array([0x7FF8000000000001, 0x7FF8000000000002], np.uint64).view(np.float64)),  # two kinds of NaN
    ],
)
def test_all_ranks_get_the_same_bits_where_order_shows(p, op, values):
    give = [np.full(9, values[r % 2]) for r in range(p)]
    run = dissect("all_reduce", "recursive_doubling", give, op=op)
    assert len({x.tobytes() for x in run.results}) == 1


@pytest.mark.parametrize("p", [2, 4, 8, 64])
@pytest.mark.parametrize("num_bytes", [64, 64 * 100_003])
@pytest.mark.parametrize(("operation", "name"), NAMES)
def test_takes_as_long_as_the_formula_says(operation, name, p, num_bytes):
    assert seconds(operation, name, p, num_bytes) == pytest.approx(predicted(operation, name, p, num_bytes), rel=1e-9)


@pytest.mark.parametrize("p", [3, 5, 6, 7, 12])
@pytest.mark.parametrize(("operation", "name"), NAMES)
def test_with_guests_the_formula_is_an_upper_bound(operation, name, p):
    for num_bytes in (420, 420 * 100_003):
        measured, formula = seconds(operation, name, p, num_bytes), predicted(operation, name, p, num_bytes)
        assert 0.66 * formula < measured <= formula * (1 + 1e-9)


@pytest.mark.parametrize(("p", "num_bytes", "ms"), [(64, 10**8, "27.03"), (8, 1024, "0.0151")])
def test_published_figures(p, num_bytes, ms):
    for found_s in (
        seconds("all_reduce", "recursive_doubling", p, num_bytes),
        predicted("all_reduce", "recursive_doubling", p, num_bytes),
    ):
        assert f"{found_s * 1e3:.4g}" == ms or f"{found_s * 1e3:.3g}" == ms
