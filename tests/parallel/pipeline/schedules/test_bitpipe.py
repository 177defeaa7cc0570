"""BitPipe, beside its paper."""

from collections import Counter
from itertools import chain

import pytest

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Times, schedule, simulate, validate
from simdist.parallel.pipeline.formulas import formula

EQUAL, LONGER_BACK = Times(2, 1, 1), Times(1, 1, 1)  # TF = TB + TW, and half of it


@pytest.mark.parametrize("d", [2, 4, 6, 8, 16])
def test_half_of_chimeras_bubble(d):
    """(D-2)/(3N+D-2) of the time where backwards take twice as long, of D micro-batches."""
    one = schedule("bitpipe", stages=d, micro_batches=d)
    said = formula("bitpipe", stages=d, micro_batches=d, times=LONGER_BACK)
    assert simulate(one, LONGER_BACK).bubble_rate == pytest.approx((d - 2) / (3 * d + d - 2)) == said.bubble_rate
    assert said.bubble == formula("chimera", stages=d, micro_batches=d, times=LONGER_BACK).bubble / 2
    assert said.weight_copies == 2 == max(Counter(chain(*one.placement)).values())


@pytest.mark.parametrize("p", [2, 4, 8, 16])
@pytest.mark.parametrize("units", [1, 2, 5])
def test_units_in_a_row_have_one_bubble_together_if_both_ways_take_as_long(p, units):
    m = units * p
    one = schedule("bitpipe", stages=p, micro_batches=m)
    said = formula("bitpipe", stages=p, micro_batches=m, times=EQUAL)
    assert simulate(one, EQUAL).bubble_rate == pytest.approx((p - 2) / (4 * m + p - 2)) == said.bubble_rate
    kept = validate(one).in_flight
    assert (min(kept), max(kept)) == ((3 * p + 2) / 4, p)
    assert kept == said.memory


def test_each_way_goes_there_and_back():
    one = schedule("bitpipe", stages=4, micro_batches=4)
    assert one.placement == ((0, 3, 4, 7), (1, 2, 5, 6), (1, 2, 5, 6), (0, 3, 4, 7))
    drawn = [f"{type(action).__name__[0]}{action.micro_batch}" for row in one.rows[:2] for action in row]
    assert " ".join(drawn[:16]) == "F0 F1 F2 F2 F3 F3 F0 B0 F1 B1 B2 B2 B3 B3 B0 B1"
    assert " ".join(drawn[16:]) == "F0 F2 F1 F3 F2 F0 F3 F1 B0 B2 B1 B3 B2 B0 B3 B1"


def test_an_odd_number_of_stages():
    with pytest.raises(ArgumentError, match="both directions on 3 stages: needs an even number"):
        schedule("bitpipe", stages=3, micro_batches=4)
