"""How often to write a checkpoint: Young's and Daly's figures, and jobs that fail at random."""

from math import inf

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.training.checkpoint import daly_interval_s, expected_s, goodput, young_interval_s

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(("failure_s", "minutes"), [(24 * HOUR, 117), (6 * HOUR, 57), (15 * MINUTE, 9.1)])
def test_the_intervals_of_dalys_figures(failure_s, minutes):
    """Its figures 3 to 5, with checkpoints of five minutes."""
    assert daly_interval_s(5 * MINUTE, failure_s) / MINUTE == pytest.approx(minutes, rel=0.006)


def test_youngs_is_the_same_if_failures_are_rare():
    assert young_interval_s(120, 6 * HOUR) / MINUTE == pytest.approx(38, abs=0.1)
    assert young_interval_s(1, 1e8) == pytest.approx(daly_interval_s(1, 1e8), rel=1e-4)


@pytest.mark.parametrize("share", [1e-6, 1e-3, 0.1, 0.5, 1, 1.9, 2, 5])
def test_dalys_takes_hardly_longer_than_the_best(share):
    def took(interval_s):
        return expected_s(1, interval_s, share, 1, restart_s=0.3)

    best = min(took(x) for x in np.geomspace(1e-4, 10, 1000))
    assert took(daly_interval_s(share, 1)) <= best * 1.003
    assert took(daly_interval_s(share, 1)) <= took(young_interval_s(share, 1))


def test_jobs_that_fail_at_random_take_so_long():
    interval, write, failure, restart, parts = 3.0, 1.0, 10.0, 2.0, 40
    rng = np.random.default_rng(0)

    def job():
        now, next_failure = 0.0, rng.exponential(failure)
        for _ in range(parts):
            needed = interval + write
            while now + needed > next_failure:
                now, needed = next_failure, restart + interval + write
                next_failure = now + rng.exponential(failure)
            now += needed
        return now

    mean = np.mean([job() for _ in range(1000)])
    assert mean == pytest.approx(expected_s(parts * interval, interval, write, failure, restart), rel=0.02)


DAY = 24 * HOUR


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, 1.8), (131_072, 0.23)])
def test_the_failures_that_kokolis_et_al_project(gpus, hours):
    """6.5 failures of a thousand nodes of eight in a day; with theirs, the best interval is Young's."""
    failure_s = 1000 * DAY / 6.5 / (gpus / 8)
    assert failure_s / HOUR == pytest.approx(hours, rel=0.03)
    for checkpoint_s, restart_s in ((10, 30), (60, 120)):
        best = young_interval_s(checkpoint_s, failure_s)
        found = goodput(best, checkpoint_s, failure_s, restart_s)
        paper = (1 - (restart_s + best / 2) / failure_s) / (1 + checkpoint_s / best)
        assert found == pytest.approx(paper, rel=0.05)  # "within 5%"


def test_the_failures_of_llama_3():
    """419 in 54 days of 16,384 GPUs: every three hours, and less than a tenth of the time is lost."""
    failure_s = 54 * DAY / 419
    assert failure_s / HOUR == pytest.approx(3.1, abs=0.05)
    assert goodput(daly_interval_s(10, failure_s), 10, failure_s, restart_s=300) > 0.9


def test_goodput_is_the_work_over_the_time():
    for numbers in ((3.0, 1.0, 10.0, 2.0), (100.0, 1.0, 1e9, 0.0)):
        assert goodput(*numbers) == pytest.approx(12 * numbers[0] / expected_s(12 * numbers[0], *numbers))
    assert goodput(100, 1, 1e9) == pytest.approx(100 / 101)
    assert goodput(1e6, 1, 1) == 0


def test_without_failures_checkpoints_alone_take_time():
    assert expected_s(100, 10, 1, 1e12) == pytest.approx(110)
    assert expected_s(100, 10, 0, 1e12) == pytest.approx(100)
    assert expected_s(0, 10, 1, 1) == 0


def test_some_jobs_never_end():
    assert expected_s(1e6, 1e6, 1, 1) == inf
    assert expected_s(1e6, 1, 1, 1, restart_s=1e6) == inf


@pytest.mark.parametrize(
    ("count", "numbers", "message"),
    [
        (young_interval_s, (-1, 1), "checkpoint_s is -1; needs at least 0"),
        (daly_interval_s, (1, 0), "failure_s is 0; needs more than 0"),
        (goodput, (0, 1, 1), "interval_s is 0; needs more than 0"),
        (expected_s, (1, 0, 1, 1), "interval_s is 0; needs more than 0"),
        (expected_s, (-1, 1, 1, 1), "work_s is -1; needs at least 0"),
        (expected_s, (1, 1, 1, 1, -1), "restart_s is -1; needs at least 0"),
    ],
)
def test_times_that_cannot_be(count, numbers, message):
    with pytest.raises(ArgumentError, match=message):
        count(*numbers)
