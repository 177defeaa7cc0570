"""Pushing and pulling: by key range, by rows, twice, late."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import serve

import simdist as sd
from simdist.asynchronous.parameter_server import BoundedStaleness, Client, Layout, Rows, Synchronous, asynchronous
from simdist.asynchronous.parameter_server.message import ANSWER, HEADER_BYTES, REQUEST, Kind, Message, buffer_for
from simdist.errors import ArgumentError, ArrayError


def with_workers(work, ranks, num_servers=1, num_keys=12, row_width=1, consistency=None, run=sd.run):
    """work(client, worker, weights) on each worker; what the servers hold at the end, their counts, the rest."""

    def program(comm):
        layout = Layout(comm.size, num_servers, num_keys, row_width)
        if layout.serves(comm):
            server = serve(comm, layout, consistency or asynchronous(), rate=1.0)
            counts = server.counts
            return server.shard.weights, [counts.num_duplicates, counts.num_late], counts.staleness
        client = Client(comm, layout, np.float64)
        told = work(client, layout.worker(comm.rank), np.full(num_keys, np.nan))
        client.leave()
        return told

    results = run(program, ranks)
    results = getattr(results, "results", results)
    return np.concatenate([r[0] for r in results[:num_servers]]), [r[1] for r in results[:num_servers]], results


@pytest.mark.parametrize("num_servers", [1, 2, 3])
@pytest.mark.parametrize("keys", [slice(0, 12), slice(3, 9), slice(5, 6), slice(4, 4), slice(11, 12)])
def test_push_and_pull_by_key_range(spmd, num_servers, keys):
    def work(client, worker, weights):
        client.push(0, -np.arange(keys.start, keys.stop, dtype=float), keys)
        assert client.pull(weights, 1, keys) == 1
        return weights

    held, _, results = with_workers(work, num_servers + 1, num_servers, run=spmd)
    wanted = np.where(np.isin(np.arange(12), range(keys.start, keys.stop)), np.arange(12), 0.0)
    np.testing.assert_array_equal(held, wanted)
    read = results[-1]
    np.testing.assert_array_equal(read[keys], wanted[keys])
    assert np.isnan(np.delete(read, np.r_[keys])).all()


@pytest.mark.parametrize("consistency", [BoundedStaleness(0), Synchronous()])
def test_workers_that_read_at_different_servers_get_each_others_updates(spmd, consistency):
    """A server learns from its updates alone where a worker is that never reads there."""

    def work(client, worker, weights):
        half = slice(6 * worker, 6 * worker + 6)
        return [client.push(t, np.full(12, -2.0)) or client.pull(weights, t + 1, half) for t in range(3)], weights[half]

    _, _, results = with_workers(work, 4, num_servers=2, consistency=consistency, run=spmd)
    for clocks, read in results[2:]:
        assert clocks == [1, 2, 3]
        np.testing.assert_array_equal(read, 6.0)


@pytest.mark.parametrize("num_servers", [1, 2, 3])
@pytest.mark.parametrize("rows", [[], [2], [3, 0], [1, 1, 1], [5, 0, 2, 5], [*range(6)]])
def test_a_sparse_push_is_a_dense_one_with_zeros(spmd, num_servers, rows):
    values = np.random.default_rng(0).normal(size=(len(rows), 2))
    dense = np.zeros((6, 2))
    np.add.at(dense, rows, values)

    def work(client, worker, weights):
        client.push_pull(0, Rows(np.array(rows, np.int64), values), weights)
        return weights

    held, _, results = with_workers(work, num_servers + 1, num_servers, row_width=2, run=spmd)
    np.testing.assert_array_equal(held, -dense.reshape(-1))
    np.testing.assert_array_equal(results[-1], held)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "uint64"])
def test_rows_by_any_whole_numbers(dtype):
    def work(client, worker, weights):
        client.push_pull(0, Rows(np.array([5, 2, 5], dtype), np.ones((3, 2))), weights)

    held, _, _ = with_workers(work, 3, 2, row_width=2)
    np.testing.assert_array_equal(held, [0, 0, 0, 0, -1, -1, 0, 0, 0, 0, -2, -2])


def test_a_sparse_push_sends_touched_rows_alone():
    def program(comm, rows):
        layout = Layout(comm.size, 2, 6000, 4)
        if layout.serves(comm):
            serve(comm, layout, asynchronous())
            return
        client = Client(comm, layout, np.float64)
        client.push(0, Rows(np.array(rows), np.ones((len(rows), 4))))
        client.leave()

    def sent(rows):
        return sd.run(program, 3, args=(rows,)).trace.statistics()[2].sent.num_bytes

    assert sent([0, 1499, 1499, 7]) == 2 * 2 * HEADER_BYTES + 3 * (8 + 4 * 8)


@pytest.mark.parametrize(
    "consistency", [asynchronous(), BoundedStaleness(0), BoundedStaleness(2), Synchronous()], ids=repr
)
def test_an_update_counts_once_however_often_it_comes(consistency):
    def work(client, worker, weights):
        clock = client.pull(weights)
        while clock < 4:
            client.push(clock, np.full(12, -1.0))
            client.push(clock, np.full(12, -50.0))
            if clock:
                client.push(clock - 1, np.full(12, -50.0))
            clock = client.pull(weights, clock + 1)

    held, counts, _ = with_workers(work, 5, 2, consistency=consistency)
    np.testing.assert_allclose(held, 4.0, rtol=1e-12)
    assert counts == [[21, 0]] * 2


@settings(max_examples=100, derandomize=True, database=None)
@given(again=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=12), s=st.integers(0, 2))
def test_updates_that_come_again_change_nothing(again, s):
    def work(client, worker, weights):
        clock = client.pull(weights)
        while clock < 6:
            client.push(clock, np.full(12, -1.0 - worker - clock))
            for who, old in again:
                if who == worker and old <= clock:
                    client.push(old, np.full(12, 99.0))
            clock = client.pull(weights, clock + 1)

    held, counts, _ = with_workers(work, 4, consistency=BoundedStaleness(s))
    np.testing.assert_allclose(held, sum(1 + w + c for w in range(3) for c in range(6)) / 3, rtol=1e-12)
    assert counts == [[sum(6 - old for _, old in again), 0]]


def test_of_weights_from_several_servers_the_earliest_clock_counts():
    def program(comm):
        layout = Layout(3, 2, 4)
        if layout.serves(comm):
            packet = buffer_for(np.empty(2))
            comm.recv(packet, 2, REQUEST)
            comm.send(Message(Kind.WEIGHTS, (5, 3)[comm.rank], layout.keys(comm.rank), np.ones(2)).packed(), 2, ANSWER)
            return None
        return Client(comm, layout, np.float64).pull(np.empty(4), 2)

    assert sd.run(program, 3).results[2] == 3


def test_old_news_does_not_end_the_step_that_is_on():
    def program(comm):
        if comm.rank == 0:
            comm.send(Message(Kind.OVER, 3).packed(), 1, ANSWER)  # step 2 is over
            comm.compute(seconds=1.0)
            comm.send(Message(Kind.OVER, 4).packed(), 1, ANSWER)
            return None
        client = Client(comm, Layout(2, 1, 4), np.float64)
        return client.is_over(3, 0.5), client.is_over(3, 1.5)

    assert sd.run(program, 2).results[1] == (None, 4)


def test_late_updates_are_dropped_and_counted():
    def work(client, worker, weights):
        clock = client.pull(weights)
        while clock < 5:
            client.comm.compute(seconds=1.0 + 2.5 * worker)
            client.push(clock, np.full(12, -1.0))
            clock = client.pull(weights, clock + 1)
        return weights

    held, counts, results = with_workers(work, 3, consistency=Synchronous(backups=1, interrupts=False))
    np.testing.assert_array_equal(held, 5.0)
    assert counts == [[0, 2]]
    assert len(results[0][2]) == 5


@pytest.mark.parametrize(
    ("act", "error", "fault"),
    [
        (lambda c, w: c.pull(w[:5]), ArrayError, r"shape \(5,\) and dtype float64 for 12 keys on rank 1"),
        (lambda c, w: c.pull(w.astype(np.float32)), ArrayError, "dtype float32"),
        (lambda c, w: c.pull(w, keys=slice(3, 13)), ArgumentError, "keys 3 to 13; there are 0 to 12"),
        (lambda c, w: c.pull(w, keys=slice(0, 4, 2)), ArgumentError, "keys 0 to 4"),
        (lambda c, w: c.push(0, w, slice(0, 4)), ArrayError, "for 4 keys"),
        (lambda c, w: c.push(0, Rows(np.array([12]), np.ones((1, 1)))), ArgumentError, "rows 12 to 12.* 0 to 11"),
        (lambda c, w: c.push(0, Rows(np.array([1]), np.ones((1, 2)))), ArrayError, "needs width 1"),
        (lambda c, w: c.push(0, Rows(np.ones(1, bool), np.ones((1, 1)))), ArrayError, "rows of dtype bool on rank 1"),
        (lambda c, w: c.push(0, Rows(np.ones(1), np.ones((1, 1)))), ArrayError, "float64 on rank 1; needs integers"),
    ],
)
def test_what_is_refused(act, error, fault):
    with pytest.raises(error, match=fault):
        with_workers(lambda client, worker, weights: act(client, weights), 2)


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_who_is_taken_for_dead_is_told_at_its_next_pull():
    def program(comm):
        layout = Layout(comm.size, 1, 12)
        if layout.serves(comm):
            return serve(comm, layout, asynchronous(), deadline_s=5.0).clocks.dead
        client, weights = Client(comm, layout, np.float64), np.zeros(12)
        clock = client.pull(weights)
        while clock is not None and clock < 30:
            comm.compute(seconds=20.0 if comm.rank == 1 and clock == 2 else 1.0)
            client.push(clock, weights)
            clock = client.pull(weights, clock + 1)
        client.leave()
        return clock

    assert sd.run(program, 3).results == [{0}, None, 30]


def test_a_deadline_counts_from_when_the_server_begins():
    def program(comm):
        layout = Layout(comm.size, 1, 12)
        comm.compute(seconds=20.0)
        if layout.serves(comm):
            return serve(comm, layout, asynchronous(), deadline_s=5.0).clocks.dead
        client = Client(comm, layout, np.float64)
        clock = client.pull(np.zeros(12))
        client.leave()
        return clock

    assert sd.run(program, 3).results == [set(), 0, 0]
