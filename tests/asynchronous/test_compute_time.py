"""Compute times: the same whoever asks and when, and distributed as their names say."""

import math

import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous import Constant, Exponential, LogNormal, Pausing, Slowed
from simdist.errors import ArgumentError

TIMES = [
    Constant(0.5),
    Exponential(2.0, seed=3),
    Exponential(2.0, seed=3, least_s=1.0),
    LogNormal(2.0, 0.7, seed=3),
    Slowed(Exponential(1.0, seed=1), {2: 4.0}),
    Pausing(LogNormal(1.0, 0.1), rank=1, step=5, pause_s=30.0),
]


@pytest.mark.parametrize("times", TIMES, ids=lambda t: type(t).__name__)
def test_a_time_hangs_on_rank_and_step_alone(times):
    asked = [(rank, step) for rank in range(4) for step in range(10)]
    found = {at: times.seconds(*at) for at in asked}
    assert {at: times.seconds(*at) for at in reversed(asked)} == found
    assert min(found.values()) >= 0


def drawn(times, count=20000):
    return np.array([times.seconds(i % 7, i // 7) for i in range(count)])


def test_exponential_times_have_its_mean_and_quantiles():
    t = drawn(Exponential(2.0))
    assert t.mean() == pytest.approx(2.0, rel=0.03)
    for share in (0.1, 0.5, 0.9):
        assert np.mean(t <= -2.0 * math.log(1 - share)) == pytest.approx(share, abs=0.015)


@pytest.mark.parametrize(("k", "ranks", "mean"), [(100, 100, 5.187), (96, 100, 3.104), (1, 50, 0.02), (0, 3, 0)])
def test_the_first_of_exponential_times(k, ranks, mean):
    """Chen et al. 2016, arXiv 1604.00981: 96 workers and 4 backups, against 100 all of which are waited for."""
    assert Exponential(3.0).first_s(k, ranks) == pytest.approx(3 * mean, abs=1.5e-3)


def test_times_of_at_least_so_much_are_as_much_longer():
    shifted = Exponential(2.0, least_s=3.0)
    np.testing.assert_allclose(drawn(shifted), drawn(Exponential(2.0)) + 3.0)
    found = np.sort(drawn(shifted).reshape(-1, 10), axis=1).mean(axis=0)
    assert [shifted.first_s(k, 10) for k in range(1, 11)] == pytest.approx(found, rel=0.03)
    assert shifted.first_s(0, 10) == 0


def test_coded_work_takes_the_less_the_more_is_redundant():
    """Lee et al. 2018, of work that takes 1 and Exp(1) more: n parts (1 + H_n)/n, any k of n (1 + H_n - H_{n-k})/k."""
    n, harmonic = 10, [sum(1 / i for i in range(1, m + 1)) for m in range(11)]
    times = {k: Exponential(1 / k, least_s=1 / k).first_s(k, n) for k in range(1, n + 1)}
    for k, seconds in times.items():
        assert seconds == pytest.approx((1 + harmonic[n] - harmonic[n - k]) / k)
    assert times[10] == pytest.approx((1 + 2.929) / 10, abs=1e-4)
    assert min(times, key=times.get) == 7


@pytest.mark.parametrize("k", [-1, 4])
def test_no_more_are_done_than_there_are(k):
    with pytest.raises(ArgumentError, match=f"the first {k} of 3 ranks|k is -1; needs at least 0"):
        Exponential().first_s(k, 3)


@pytest.mark.parametrize(("k", "ranks", "least_s"), [(1, 1, 0.0), (1, 4, 0.0), (3, 4, 0.0), (10, 4, 0.0), (3, 4, 2.0)])
def test_ranks_that_wait_for_none_finish_steps_at_this_rate(k, ranks, least_s):
    times, until_s = Exponential(2.0, least_s=least_s), 4000.0

    def program(comm):
        done = []
        while comm.clock() < until_s:
            times.spend(comm, len(done))
            done.append(comm.clock())
        return done

    done = sorted(t for each in sd.run(program, ranks).results for t in each if t < until_s)
    assert np.mean(np.diff(done[::k])) == pytest.approx(times.next_s(k, ranks), rel=0.05)
    waiting = (least_s + 2.0 * sum(1 / i for i in range(1, ranks + 1))) / (least_s + 2.0)
    assert times.first_s(ranks, ranks) / times.next_s(ranks, ranks) == pytest.approx(waiting)
    with pytest.raises(ArgumentError, match="ranks is 0; needs at least 1"):
        times.next_s(1, 0)


def test_log_normal_times_have_its_mean_and_spread():
    t = drawn(LogNormal(2.0, sigma=0.6))
    assert t.mean() == pytest.approx(2.0, rel=0.03)
    assert np.log(t).std() == pytest.approx(0.6, rel=0.03)


def test_another_seed_draws_other_times():
    assert Exponential(seed=0).seconds(0, 0) != Exponential(seed=1).seconds(0, 0)


def test_one_rank_slower():
    base = Exponential(seed=1)
    times = Slowed(base, {2: 4.0})
    assert times.seconds(2, 3) == 4 * base.seconds(2, 3)
    assert times.seconds(1, 3) == base.seconds(1, 3)
    assert Slowed(times, {2: 2.0}).slowness(2) == 8


def test_one_rank_pauses_once():
    times = Pausing(Constant(1.0), rank=1, step=5, pause_s=30.0)
    assert [times.seconds(1, 4), times.seconds(1, 5), times.seconds(0, 5)] == [1, 31, 1]
    slow = Pausing(Slowed(Constant(1.0), {1: 4.0}), rank=1, step=5, pause_s=30.0)
    assert [slow.more_s(rank, 5, worked_s=2.0) for rank in (0, 1)] == [1, 4 + 30 + 3 * 2]


def test_a_virtual_clock_moves_by_it():
    def program(comm):
        times = Slowed(Constant(2.0), {1: 3.0})
        times.spend(comm, step=0)
        times.spend(comm, step=1, worked_s=0.5)
        times.spend(comm, step=2, rank=1)
        return comm.clock()

    run = sd.run(program, 2)
    assert run.results == [2 + 2 + 6, 6 + 7 + 6]
    assert {span.name for span in run.trace} == {"compute"}


def test_it_takes_so_long_by_any_clock(spmd):
    def program(comm):
        start_s = comm.clock()
        Slowed(Constant(0.01), {1: 3.0}).spend(comm, step=0)
        return comm.clock() - start_s

    spent = spmd(program, 2)
    assert spent[0] >= 0.01
    assert spent[1] >= 0.03


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Constant(-1.0), "step_s is -1.0; needs at least 0"),
        (lambda: Exponential(math.nan), "mean_s is nan"),
        (lambda: Exponential(seed=-1), "seed is -1"),
        (lambda: Exponential(least_s=-1), "least_s is -1"),
        (lambda: LogNormal(sigma=math.inf), "sigma is inf"),
        (lambda: Slowed(Constant(1.0), {2: 0.0}), "rank 2 cannot be slow by the factor 0.0"),
        (lambda: Slowed(Constant(1.0), {2: 1e308}), r"factor 1e\+308; needs more than 0 and less than 1e\+12"),
        (lambda: Pausing(Constant(1.0), rank=-1), "rank is -1"),
    ],
)
def test_what_is_no_time(make, fault):
    with pytest.raises(ArgumentError, match=fault):
        make()
