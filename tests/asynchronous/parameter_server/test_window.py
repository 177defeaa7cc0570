"""The window of bounded staleness, seen through the weights: each update sets one key of its own."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import IDEAL, serve

import simdist as sd
from simdist.asynchronous.parameter_server import BoundedStaleness, Client, Layout, Synchronous


def seen(consistency, num_servers, workers, steps, times, cluster=IDEAL, fused=False):
    """What each read saw: (its worker, its clock, booleans of shape (workers, steps): whose update of which stamp).

    Each worker comes late, works on each step, and dawdles after it, for times taken from the list.
    """
    reads = []

    def program(comm):
        layout = Layout(comm.size, num_servers, workers * steps)
        if layout.serves(comm):
            serve(comm, layout, consistency, rate=1.0)
            return
        client, worker = Client(comm, layout, np.float64), layout.worker(comm.rank)
        weights = np.zeros(layout.num_keys)

        def spend(i):
            comm.compute(seconds=times[(7 * worker + i) % len(times)])

        spend(0)
        clock = client.pull(weights)
        while clock < steps:
            reads.append((worker, clock, weights.reshape(workers, steps) > 0))
            spend(1 + 2 * clock)
            update = np.zeros(layout.num_keys)
            update[worker * steps + clock] = -1.0
            if fused:
                clock = client.push_pull(clock, update, weights)
            else:
                client.push(clock, update)
                spend(2 + 2 * clock)
                clock = client.pull(weights, clock + 1)
        client.leave()

    sd.run(program, num_servers + workers, cluster=cluster, record=False)
    return reads


def hold(reads, s):
    """Fail unless each read saw all before the window, none beyond it, and all of its own."""
    for worker, c, updates in reads:
        for other, stamps in enumerate(updates):
            if other == worker:
                assert stamps[:c].all(), (worker, c, "its own")
                assert not stamps[c:].any()
            else:
                assert stamps[: max(0, c - s)].all(), (worker, c, other, "misses a stamp up to c-s-1")
                assert not stamps[c + s :].any(), (worker, c, other, "sees a stamp beyond c+s-1")


# Few values, so that many arrive at one instant, and ties are broken in all ways.
TIMES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 5.0, 20.0]), min_size=1, max_size=23)


@settings(max_examples=300, derandomize=True, database=None)
@given(
    s=st.integers(0, 3),
    num_servers=st.integers(1, 2),
    workers=st.integers(1, 4),
    steps=st.integers(1, 7),
    times=TIMES,
    jitter=st.sampled_from([0.0, 1e9]),
    seed=st.integers(0, 1 << 20),
    fused=st.booleans(),
)
def test_every_read_keeps_to_the_window(s, num_servers, workers, steps, times, jitter, seed, fused):
    # With jitter a message of a nanosecond takes up to a second.
    cluster = IDEAL.with_(jitter=jitter, seed=seed)
    reads = seen(BoundedStaleness(s), num_servers, workers, steps, times, cluster, fused)
    assert sorted((worker, c) for worker, c, _ in reads) == [(w, c) for w in range(workers) for c in range(steps)]
    hold(reads, s)


@pytest.mark.parametrize("s", [0, 1, 2, 3])
def test_reads_come_to_both_ends_of_the_window(s):
    newest, oldest = -math.inf, math.inf
    for seed in range(12):
        times = np.random.default_rng(seed).choice([0.1, 1.0, 9.0], size=17).tolist()
        for worker, c, updates in seen(BoundedStaleness(s), 1, 4, 12, times):
            for other in set(range(4)) - {worker}:
                found, missed = np.flatnonzero(updates[other]), np.flatnonzero(~updates[other])
                newest = max([newest, *(found - c)])
                oldest = min([oldest, *(missed - c)])
    assert (newest, oldest) == (s - 1, -s)


@settings(max_examples=100, derandomize=True, database=None)
@given(workers=st.integers(1, 5), steps=st.integers(1, 6), times=TIMES, bounded=st.booleans())
def test_an_empty_window_shows_all_before_and_nothing_else(workers, steps, times, bounded):
    consistency = BoundedStaleness(0) if bounded else Synchronous()
    for _, c, updates in seen(consistency, 1, workers, steps, times):
        assert updates[:, :c].all() and not updates[:, c:].any()


@settings(max_examples=100, derandomize=True, database=None)
@given(workers=st.integers(2, 5), backups=st.integers(1, 3), steps=st.integers(1, 8), times=TIMES, told=st.booleans())
def test_backup_workers_leave_so_many_updates_in_every_step(workers, backups, steps, times, told):
    backups = min(backups, workers - 1)
    for _, c, updates in seen(Synchronous(backups, told), 1, workers, steps, times):
        assert (updates[:, :c].sum(axis=0) == workers - backups).all()
        assert not updates[:, c:].any()


def test_without_a_bound_a_read_sees_all_that_has_come():
    times = [0.1] * 50 + [9.0] * 50  # the first worker is fast, the last slow
    ahead = []
    for worker, c, updates in seen(BoundedStaleness(math.inf), 1, 8, 20, times):
        assert updates[worker, :c].all() and not updates[worker, c:].any()
        ahead += [int(stamps.sum()) - c for stamps in updates]
    assert max(ahead) > 15 and min(ahead) < -15
