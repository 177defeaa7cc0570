"""Lower bounds on schedules, against their simulations."""

import numpy as np
import pytest

from simdist.parallel.pipeline import Backward, Forward, Schedule, Times, schedule, schedules, simulate
from simdist.parallel.pipeline.earliest import earliest_ends

MORE = {"interleaved-1f1b": {"chunks": 3}}


@pytest.mark.parametrize("name", schedules())
def test_no_rank_ends_earlier(name):
    rng = np.random.default_rng(1)
    for stages, micro_batches in ((2, 2), (4, 8), (4, 6), (6, 18)):
        one = schedule(name, stages=stages, micro_batches=micro_batches, **MORE.get(name, {}))
        for _ in range(5):
            f, i, w = (rng.uniform(0.1, 2, one.num_stages).tolist() for _ in range(3))
            for hop in (0.0, 0.3):
                times = Times(f, i, w, hop)
                found = np.array([row[-1] for row in simulate(one, times).course.end])
                assert np.all(earliest_ends(one, times) <= found * (1 + 1e-12))


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (2, 5), (4, 4), (5, 12), (4, 1)])
def test_it_is_exact_for_equal_stages(name, stages, micro_batches):
    one, times = schedule(name, stages=stages, micro_batches=micro_batches), Times(1, 1.5, 0.7)
    assert max(earliest_ends(one, times)) == pytest.approx(simulate(one, times).makespan, rel=1e-12)


def test_a_zero_bubble_schedule_of_halves_waits_for_less():
    """The last rank of zb-h1 has no bubble but the first micro-batch's forward."""
    one, times = schedule("zb-h1", stages=4, micro_batches=12), Times(1, 1, 1)
    assert max(earliest_ends(one, times)) == 3 + 12 * 3 == simulate(one, times).makespan


def test_a_rank_without_actions_ends_at_once():
    one = Schedule("mine", [[Forward(0), Backward(0)], []], placement=((0,), (0,)))
    assert earliest_ends(one, Times([1], [1], [1])) == [3, 0]
