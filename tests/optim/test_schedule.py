from itertools import pairwise

import pytest

from simdist.errors import ArgumentError, UnknownNameError
from simdist.optim import Schedule, scaled_learning_rate


def test_it_climbs_in_a_line_and_falls_in_a_cosine():
    schedule = Schedule(2.0, 104, warmup_steps=4)
    rates = [schedule(step) for step in range(104)]
    assert rates[:5] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert rates[54] == pytest.approx(1.0)  # half way down
    assert rates[4 + 25] == pytest.approx(1 + 0.5**0.5)  # a quarter: cos 45°
    assert all(a > b > 0 for a, b in pairwise(rates[4:]))


def test_it_ends_at_the_floor():
    assert Schedule(2.0, 100, warmup_steps=4, floor=0.1)(100) == pytest.approx(0.2)


def test_a_run_may_be_all_warm_up():
    assert [Schedule(1.0, 2, warmup_steps=4)(step) for step in range(2)] == [0.25, 0.5]
    assert Schedule(1.0, 1)(0) == 1.0


def test_linear_falls_in_a_line():
    schedule = Schedule(2.0, 104, "linear", warmup_steps=4, floor=0.5)
    assert [schedule(step) for step in (0, 3, 4, 54, 104, 200)] == pytest.approx([0.5, 2.0, 2.0, 1.5, 1.0, 1.0])


def test_constant_stays():
    schedule = Schedule(2.0, 10, "constant", warmup_steps=2)
    assert [schedule(step) for step in range(10)] == [1.0, *[2.0] * 9]


@pytest.mark.parametrize(("k", "peak"), [(1, 0.0125), (8, 0.1), (256, 3.2)])
def test_large_batches_as_goyal_et_al_trained(k, peak):
    """n = 32 a worker: 0.1 * kn / 256, reached after 5 epochs from the rate of one worker, that of the first step."""
    assert scaled_learning_rate(32 * k) == pytest.approx(peak)
    schedule = Schedule(scaled_learning_rate(32 * k), 90, "constant", warmup_steps=5, start=scaled_learning_rate(32))
    climb = [schedule(epoch) for epoch in range(6)]
    steps = [b - a for a, b in pairwise(climb)]
    assert steps == pytest.approx([(peak - 0.0125) / 5] * 5)
    assert (climb[0], climb[-1]) == pytest.approx((0.0125, peak))


def test_drops_as_goyal_et_al_trained():
    schedule = Schedule(3.2, 90, "constant", warmup_steps=5, start=0.1, drops=(30, 60, 80))
    found = [schedule(epoch) for epoch in (5, 29, 30, 59, 60, 79, 80, 89)]
    assert found == pytest.approx([3.2, 3.2, 0.32, 0.32, 0.032, 0.032, 0.0032, 0.0032])
    assert Schedule(1.0, 4, "linear", drops=(2,))(3) == pytest.approx(0.25 / 10)


def test_quadratic_falls_by_the_square_of_what_is_left():
    schedule = Schedule(2.0, 12, "quadratic", warmup_steps=2)
    assert [schedule(step) for step in (2, 7, 12)] == [2.0, 0.5, 0.0]


@pytest.mark.parametrize("step", [1, 100, 4000, 4001, 16_000, 100_000])
def test_the_first_transformers_rate(step):
    """d^-0.5 min(s^-0.5, s w^-1.5) from s = 1 on; with d = 512 and w = 4000 at most 7.0e-4."""
    width, warmup = 512, 4000
    schedule = Schedule((width * warmup) ** -0.5, 100_000, "inverse-sqrt", warmup)
    assert schedule(step - 1) == pytest.approx(width**-0.5 * min(step**-0.5, step * warmup**-1.5))
    assert schedule(warmup - 1) == pytest.approx(7.0e-4, rel=2e-3)
    assert schedule(4 * warmup - 1) == pytest.approx(schedule.peak / 2)
    assert Schedule(1.0, 10, "inverse-sqrt")(3) == 0.5
    assert Schedule(1.0, 15, "inverse-sqrt")(100) == Schedule(1.0, 15, "inverse-sqrt")(15) == 0.25
    assert Schedule(1.0, 2, "inverse-sqrt", warmup_steps=4)(5) == 1


def test_arguments_have_limits():
    for wrong in ({"peak": 0}, {"steps": 0}, {"warmup_steps": -1}, {"start": 2.0}, {"floor": -0.1}, {"floor": 1.1}):
        with pytest.raises(ArgumentError, match=f"{next(iter(wrong))}"):
            Schedule(**{"peak": 1.0, "steps": 10, **wrong})
    for peak in (float("inf"), float("nan")):
        with pytest.raises(ArgumentError, match=f"peak is {peak}; needs"):
            Schedule(peak, 10)
    for drops in (30, "30", {30}):
        with pytest.raises(ArgumentError, match="drops is .*30.*; needs a sequence of steps, such as"):
            Schedule(1.0, 90, drops=drops)
    for drops in ((30, -1), (30, "60")):
        with pytest.raises(ArgumentError, match=r"drops\[1\] is .*; needs"):
            Schedule(1.0, 90, drops=drops)
    with pytest.raises(UnknownNameError, match="did you mean 'cosine'"):
        Schedule(1.0, 10, "cosin")
