"""Servers and workers that hear of a death, or wait until a deadline, on virtual ranks. On real ones: test_death."""

import numpy as np
import pytest
from mortal import mortal
from servers import IDEAL, serve, worked

import simdist as sd
from simdist.asynchronous import Constant, Slowed
from simdist.asynchronous.parameter_server import (
    BoundedStaleness,
    Client,
    Layout,
    ParameterServer,
    Synchronous,
    asynchronous,
    train,
)
from simdist.asynchronous.parameter_server.message import REQUEST, Kind, Message
from simdist.errors import PeerLost, RankFailed, UnmatchedMessage


def until_some_die(comm, how, steps, deaths):
    """Train; a rank that stops has died."""
    mortal(comm, deaths, tick_s=0.25)
    report = worked(comm, how, steps)
    if comm.rank in how.stops:
        deaths[comm.rank] = comm.clock()
    return report


@pytest.mark.parametrize(("dead", "deadline_s"), [(2, None), (3, None), (3, 10.0)])
@pytest.mark.parametrize("consistency", [BoundedStaleness(1), asynchronous(), Synchronous(1)], ids=repr)
@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_the_rest_goes_on_at_once(consistency, dead, deadline_s):
    how = ParameterServer(2, consistency, compute_time=Constant(1.0), stops={dead: 5}, deadline_s=deadline_s)
    run = sd.run(until_some_die, 5, args=(how, 20, {}), cluster=IDEAL)
    for rank, worker in enumerate(run.results[2:], 2):
        ended, steps = ("stopped", 5) if rank == dead else ("done", 20)
        assert (worker.ended, worker.clocks) == (ended, [*range(steps)])
        assert worker.elapsed_s == pytest.approx(steps, rel=1e-6)
    for server in run.results[:2]:
        assert {w for w, t in server.counts.applied if t == 19} == {0, 1, 2} - {dead - 2}


def test_more_die_than_there_are_to_spare():
    how = ParameterServer(1, Synchronous(1), compute_time=Constant(1.0), stops={2: 3, 3: 5})
    with pytest.raises(RankFailed, match=r"worker 2 of 3 \(rank 3\) has died; .* can do without 1, and 2 are dead"):
        sd.run(until_some_die, 4, args=(how, 20, {}), cluster=IDEAL)


@pytest.mark.parametrize(
    ("hears", "error", "words"),
    [(1, RankFailed, "server 0 of 2 has died, and its weights with it"), (2, PeerLost, "a wait on rank 2")],
)
def test_without_a_server_nobody_goes_on(hears, error, words):
    how = ParameterServer(2, Synchronous(1), compute_time=Constant(1.0))

    def program(comm):
        if comm.rank == hears:
            mortal(comm, {0: 2.5}, tick_s=0.25)
        worked(comm, how, 20)

    with pytest.raises(error, match=words):
        sd.run(program, 5, cluster=IDEAL)


def test_the_death_of_a_worker_that_has_left_changes_nothing():
    """Each update still weighs a third: one of three workers is done first, and its process ends badly."""
    times = Slowed(Constant(1.0), {2: 4.0, 3: 4.0})
    how = ParameterServer(1, asynchronous(), compute_time=times)

    def program(comm):
        mortal(comm, {1: 10.5}, tick_s=0.25)
        return train(comm, np.zeros(1), lambda weights, step: (0.0, -np.ones(1)), 10, 1.0, how)

    server = sd.run(program, 4, cluster=IDEAL).results[0]
    assert server.state.vectors["weights"] == pytest.approx(10)


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_no_server_waits_until_the_silent_take_their_answers():
    """Which are longer than what any world keeps until it is asked for."""

    def program(comm):
        layout = Layout(comm.size, 1, 200_000)
        if layout.serves(comm):
            server = serve(comm, layout, asynchronous(), deadline_s=10.0)
            return server.clocks.dead, comm.clock()
        if comm.rank == 1:
            comm.send(Message(Kind.PULL, 0, layout.keys(0)).packed(), 0, REQUEST)
        else:
            Client(comm, layout, np.dtype(np.float64)).leave()
        return None

    assert sd.run(program, 3, cluster=IDEAL).results[0] == ({0}, pytest.approx(10.0, rel=1e-3))


def slow_and_steady(steady, slow, consistency):
    """What two workers do on their clients, with a server that has patience for 10 s."""

    def program(comm):
        layout, weights = Layout(comm.size, 1, 1), np.zeros(1)
        if layout.serves(comm):
            serve(comm, layout, consistency, deadline_s=10.0)
            return None
        client = Client(comm, layout, weights.dtype)
        return (steady if comm.rank == 1 else slow)(comm, client, weights)

    return sd.run(program, 3, cluster=IDEAL).results[1:]


def test_who_waits_for_weights_is_not_silent():
    def work(comm, client, weights, seconds):
        comm.compute(seconds=seconds)
        client.pull(weights)
        comm.compute(seconds=seconds)
        clock = client.push_pull(0, np.ones(1), weights)
        client.leave()
        return clock, comm.clock()

    fast, slow = (lambda *of, seconds=seconds: work(*of, seconds) for seconds in (1.0, 9.0))
    assert slow_and_steady(fast, slow, BoundedStaleness(0)) == [(1, pytest.approx(18)), (1, pytest.approx(18))]


def test_a_worker_taken_for_dead_gets_one_answer_to_each_question():
    def steady(comm, client, weights):
        clock = client.pull(weights)
        for _ in range(6):
            comm.compute(seconds=5.0)
            clock = client.push_pull(clock, np.ones(1), weights)
        client.leave()
        return clock

    def silent(comm, client, weights):
        client.pull(weights)
        comm.compute(seconds=20.0)
        client.push(0, np.ones(1))
        found = client.pull(weights, 1)
        comm.compute(seconds=100.0)
        client.leave()  # asks no server, since none may be there any more
        return found

    words = "^the program has ended, but\n  rank 0 never waited for its isend to rank 2 with tag 2 on 'world'$"
    with pytest.warns(UnmatchedMessage, match=words):
        assert slow_and_steady(steady, silent, BoundedStaleness(0)) == [6, None]


@pytest.mark.parametrize(
    ("consistency", "survives"), [(Synchronous(), False), (Synchronous(1), True), (asynchronous(), True)], ids=repr
)
def test_a_job_survives_where_there_is_somebody_to_spare(consistency, survives):
    def program(comm):
        asked = []
        comm.survive = lambda: asked.append(True)
        worked(comm, ParameterServer(1, consistency), 1)
        return asked == [True]

    assert sd.run(program, 3, cluster=IDEAL).results == [survives] * 3
