"""The rules by themselves. What they make of a run: test_window."""

import math

import numpy as np
import pytest

from simdist.asynchronous.parameter_server import BoundedStaleness, Synchronous, asynchronous, synchronous
from simdist.asynchronous.parameter_server.clocks import Clocks, Push
from simdist.errors import ArgumentError, ArrayError


@pytest.mark.parametrize("s", [0, 1, 3])
def test_a_read_waits_for_stamps_up_to_its_clock_less_s_less_1(s):
    clocks = Clocks(3)
    rule = BoundedStaleness(s)
    for c in range(6):
        assert rule.admits(clocks, c) == (c <= s)  # nothing has come
    clocks.commits = [9, 5, 9]  # the slowest has sent 0 … 4
    for c in range(12):
        assert rule.admits(clocks, c) == (c - s - 1 <= 4)


@pytest.mark.parametrize("s", [0, 1, 3])
def test_an_update_waits_for_the_reads_at_its_stamp_less_s(s):
    clocks, held = Clocks(3), [Push(0, t, 0, slice(0, 1), np.ones(1)) for t in range(9)]
    clocks.reads = [9, 2, 5]
    let_in = [push.clock for step in BoundedStaleness(s).due(clocks, held) for push in step]
    assert let_in == [t for t in range(9) if t - s < 2]
    assert [push.clock for push in held] == [t for t in range(9) if t - s >= 2]


def test_no_bound():
    assert asynchronous() == BoundedStaleness(math.inf)
    assert asynchronous().admits(Clocks(2), 10**9)
    assert synchronous() == Synchronous(backups=0)


@pytest.mark.parametrize(("rule", "spare"), [(BoundedStaleness(1), 3), (Synchronous(), 0), (Synchronous(2), 2)])
def test_how_many_may_die(rule, spare):
    assert rule.num_spare(4) == spare


@pytest.mark.parametrize("rule", [BoundedStaleness(1), Synchronous(1)])
def test_all_can_stop_where_the_fastest_is_that_is_alive(rule):
    clocks = Clocks(3)
    for worker, clock in ((0, 4), (1, 6), (2, 7)):
        clocks.read(worker, clock)
    clocks.commit(2, 3)  # an update from before its last read
    assert rule.end(clocks) == 8
    clocks.leave(2, died=True)
    assert rule.end(clocks) == 7
    assert asynchronous().end(clocks) == 0, "at once, even who has made no step"


@pytest.mark.parametrize(("backups", "kept"), [(0, [0, 1, 2]), (1, [0, 2])])
def test_a_step_adds_updates_in_the_order_of_workers_however_they_arrive(backups, kept):
    held = [Push(worker, 0, 0, slice(0, 1), np.ones(1)) for worker in (2, 0, 1)]
    (step,) = Synchronous(backups).due(Clocks(3), held)
    assert [push.worker for push in step] == kept


def test_no_step_waits_for_the_updates_of_the_dead():
    clocks, rule = Clocks(3), BoundedStaleness(1)
    clocks.applied = [5, 2, 7]
    assert rule.num_whole_steps(clocks) == 2
    clocks.leave(1, died=True)
    assert rule.num_whole_steps(clocks) == 5


def test_workers_go_on_after_the_updates_that_the_weights_include():
    first, clocks, rule = Clocks(2), Clocks(2), BoundedStaleness(1)
    first.applied, first.commits = [3, 5], [4, 6]  # each has one on its way, which is lost
    clocks.restore(first.numbers())
    assert [rule.clock_of(clocks, worker) for worker in range(2)] == [3, 5]
    assert [rule.admits(clocks, c) for c in (3, 4, 5)] == [True, True, False]
    with pytest.raises(ArrayError, match="this server has 3 workers"):
        Clocks(3).restore(first.numbers())


@pytest.mark.parametrize("staleness", [-1, 0.5, math.nan, -math.inf])
def test_what_is_no_staleness(staleness):
    with pytest.raises(ArgumentError, match="staleness is"):
        BoundedStaleness(staleness)


def test_what_are_no_backups():
    with pytest.raises(ArgumentError, match="backups is -1"):
        Synchronous(-1)
