"""GEMS, beside what is written about it."""

import pytest

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Times, schedule, simulate, validate
from simdist.parallel.pipeline.formulas import formula


def test_micro_batches_go_down_and_up_by_turns():
    one = schedule("gems", stages=4, micro_batches=3)
    assert str(one).splitlines() == [
        "0F0 0B0 3F1 3B1 0F2 0B2",
        "1F0 1B0 2F1 2B1 1F2 1B2",
        "2F0 2B0 1F1 1B1 2F2 2B2",
        "3F0 3B0 0F1 0B1 3F2 3B2",
    ]
    starts = simulate(one, Times(1, 0.5, 0.5)).course.start  # in slots, as in the module's picture
    assert [row[:4] for row in starts] == [[0, 7, 8, 9], [1, 6, 7, 10], [2, 5, 6, 11], [3, 4, 5, 12]]


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("p", [2, 4, 8, 32])
def test_the_limit_of_many_micro_batches(p):
    """A bubble of nearly (p-1)/(p+1/2) where backwards take twice as long, and one micro-batch's activations."""
    one, times = schedule("gems", stages=p, micro_batches=1001), Times(1, 1, 1)
    assert simulate(one, times).bubble_rate == pytest.approx((p - 1) / (p + 1 / 2), rel=1e-3)
    assert set(validate(one).in_flight) == {1}
    assert formula("gems", stages=p, micro_batches=1001, times=times).weight_copies == 2


@pytest.mark.parametrize("p", [2, 4, 6])
@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_the_bubble_of_any_times(p, m):
    for times in (Times(2, 1, 1), Times(1, 1, 1), Times(3, 1, 1), Times(5, 2, 0.5)):
        said = formula("gems", stages=p, micro_batches=m, times=times)
        run = simulate(schedule("gems", stages=p, micro_batches=m), times)
        assert run.own_bubble == pytest.approx(said.bubble)
        assert said.makespan_rate == (None if m % 2 == 0 else pytest.approx(run.bubble_rate))


def test_an_odd_number_of_stages():
    with pytest.raises(ArgumentError, match="both directions on 3 stages: needs an even number"):
        schedule("gems", stages=3, micro_batches=4)
