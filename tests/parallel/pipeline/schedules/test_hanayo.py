"""Hanayo: waves of Chimera's slots."""

import pytest

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Times, schedule, simulate, validate
from simdist.parallel.pipeline.formulas import formula

EQUAL, LONGER_BACK = Times(2, 1, 1), Times(1, 1, 1)  # TF = TB + TW, and half of it


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("waves", [1, 2, 4])
def test_each_doubling_of_the_waves_halves_the_bubble(p, waves):
    """(2P-2)/(3PW+2P-2) of the time where backwards take twice as long, of P micro-batches."""
    one = schedule("hanayo", stages=p, micro_batches=p, chunks=2 * waves)
    said = formula("hanayo", stages=p, micro_batches=p, times=LONGER_BACK, chunks=2 * waves)
    rate = (2 * p - 2) / (3 * p * waves + 2 * p - 2)
    assert simulate(one, LONGER_BACK).bubble_rate == pytest.approx(rate) == said.bubble_rate
    assert validate(one).in_flight == pytest.approx(said.memory)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("units", [2, 5])
def test_units_in_a_row_have_one_bubble_together_if_both_ways_take_as_long(p, units):
    one = schedule("hanayo", stages=p, micro_batches=units * p, chunks=4)
    said = formula("hanayo", stages=p, micro_batches=units * p, times=EQUAL, chunks=4)
    assert simulate(one, EQUAL).own_bubble == pytest.approx(2 * (p - 1) / 2) == said.bubble
    assert said.weight_copies == 1


def test_waves_turn_on_the_outer_ranks():
    one = schedule("hanayo", stages=2, micro_batches=2, chunks=4)
    assert one.placement == ((0, 3, 4, 7), (1, 2, 5, 6))
    drawn = [" ".join(f"{type(action).__name__[0]}{action.micro_batch}" for action in row) for row in one.rows]
    assert drawn == [
        "F0 F1 F0 F0 F1 F1 F0 B0 F1 B1 B0 B0 B1 B1 B0 B1",
        "F0 F0 F1 F1 F0 F0 F1 F1 B0 B0 B1 B1 B0 B0 B1 B1",
    ]


def test_an_odd_number_of_chunks():
    with pytest.raises(ArgumentError, match="hanayo with chunks=3; needs an even number"):
        schedule("hanayo", stages=2, micro_batches=4, chunks=3)
