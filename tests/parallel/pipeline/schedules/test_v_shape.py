"""V-Half and V-Min: for times that differ W's find other places, within the same memory."""

import pytest

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Times, schedule, simulate, validate

PROFILED = Times(18.522, 18.086, 9.337, 0.601)  # of the zero-bubble paper's 1.5B model
TIMES = [PROFILED, Times(1, 2, 0.3, 0.1), Times(1, 1, 4), Times([1, 2, 3, 4, 1, 2, 3, 4], [1.0] * 8, [0.5] * 8, 0.2)]


@pytest.mark.parametrize("name", ["v-half", "v-min"])
@pytest.mark.parametrize("m", [3, 8, 13])
@pytest.mark.parametrize("times", TIMES)
def test_never_worse_than_for_equal_times_within_the_same_memory(name, m, times):
    plain, made = (schedule(name, stages=4, micro_batches=m, **more) for more in ({}, {"times": times}))
    assert simulate(made, times).longest_span <= simulate(plain, times).longest_span
    most = {"v-half": 3.0, "v-min": 2.0}[name]
    assert max(validate(made).in_flight) <= most
    assert schedule(name, stages=4, micro_batches=m, times=Times()).rows == plain.rows


def test_what_times_are_worth():
    plain, made = (schedule("v-half", stages=8, micro_batches=24, **more) for more in ({}, {"times": PROFILED}))
    assert simulate(plain, PROFILED).own_bubble_rate > 0.245
    assert simulate(made, PROFILED).own_bubble_rate < 0.225


def test_times_of_another_number_of_stages():
    with pytest.raises(ArgumentError, match="forward has 4 times"):
        schedule("v-min", stages=4, micro_batches=2, times=Times([1.0] * 4))


@pytest.mark.parametrize(("name", "others"), [("v-half", ["v-half"]), ("zb-auto", ["zb-h1", "zb-h2"])])
def test_never_worse_where_messages_wait_for_a_port(name, others):
    times = Times(1, 1, 0.5, 0.2, ports={(0, 1): ("out", 2)})
    made = schedule(name, stages=3, micro_batches=3, times=times)
    least = min(simulate(schedule(other, stages=3, micro_batches=3), times).longest_span for other in others)
    assert simulate(made, times).longest_span <= least
