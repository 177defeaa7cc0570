"""Servers and workers that hear of a death from the communicator, on virtual ranks. On real ones: test_death."""

import pytest
from mortal import mortal
from servers import IDEAL, worked

import simdist as sd
from simdist.asynchronous import Constant
from simdist.asynchronous.parameter_server import BoundedStaleness, ParameterServer, Synchronous, asynchronous
from simdist.errors import PeerLost, RankFailed


def until_some_die(comm, how, steps, deaths):
    """Train; a rank that stops has died."""
    mortal(comm, deaths, tick_s=0.25)
    report = worked(comm, how, steps)
    if comm.rank in how.stops:
        deaths[comm.rank] = comm.clock()
    return report


@pytest.mark.parametrize("deadline_s", [None, 10.0])
@pytest.mark.parametrize("consistency", [BoundedStaleness(1), asynchronous(), Synchronous(1)], ids=repr)
@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_the_rest_goes_on_at_once(consistency, deadline_s):
    how = ParameterServer(2, consistency, compute_time=Constant(1.0), stops={3: 5}, deadline_s=deadline_s)
    run = sd.run(until_some_die, 5, args=(how, 20, {}), cluster=IDEAL)
    servers, workers = run.results[:2], run.results[2:]
    assert [worker.ended for worker in workers] == ["done", "stopped", "done"]
    assert [worker.clocks for worker in workers] == [[*range(20)], [*range(5)], [*range(20)]]
    assert workers[0].elapsed_s == pytest.approx(20, rel=1e-6)
    for server in servers:
        assert {w for w, t in server.counts.applied if t == 19} == {0, 2}


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
