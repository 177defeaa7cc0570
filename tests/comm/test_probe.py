"""Probe: looking for a message, for a while."""

from math import inf, nan

import numpy as np
import pytest
from jobs import needs_mpi

import simdist as sd
from simdist.cluster import Cluster, Device, Link
from simdist.comm.solo import SoloCommunicator
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, DeadlineError, DeadlockError

SIMPLE = Cluster("simple", Device("d", 1e9, 1e9, 1e9), Link(1.0, 1e12), Link(1.0, 1e12))


def test_it_finds_what_has_come_and_leaves_it(spmd):
    def program(comm):
        x = np.full(3, comm.rank)
        comm.barrier()
        if comm.rank == 0:
            comm.send(x, 1, tag=5)
            return True
        found = comm.probe(tag=5, until_s=comm.clock() + 10)
        assert comm.probe(tag=5)
        assert not comm.probe(tag=6)
        comm.recv(x, tag=5)
        return found and not comm.probe(tag=5) and not x.any()

    assert spmd(program, 2) == [True, True]


def test_it_gives_up_when_its_time_is_over(spmd):
    def program(comm):
        until_s = comm.clock() + 0.02
        found = comm.probe(until_s=until_s)
        return found, comm.clock() >= until_s

    assert spmd(program, 2) == [(False, True)] * 2


@pytest.mark.parametrize("until_s", [np.float32(0.1), np.float64(0.1), 1, True])
def test_a_virtual_clock_stays_a_float_whatever_number_it_goes_on_to(until_s):
    def program(comm):
        comm.probe(until_s=until_s)
        return comm.clock()

    (clock_s,), *_ = run_virtual(program, 1, SIMPLE)
    assert clock_s == until_s and type(clock_s) is float


@pytest.mark.parametrize(
    ("until_s", "found", "at_s"),
    [(2.0, False, 2.0), (3.5, False, 3.5), (4.5, True, 4.0), (4.0, True, 4.0), (0.0, False, 0.5)],
)
@pytest.mark.parametrize("num_bytes", [8, 10**6])
def test_virtual_time_goes_on_to_the_message_or_to_the_limit(until_s, found, at_s, num_bytes):
    cluster = SIMPLE.with_(inside=Link(1.0, 1e18))

    def program(comm):
        x = np.zeros(num_bytes, np.uint8)
        if comm.rank == 0:
            comm.compute(seconds=3.0)
            comm.send(x, 1)
            return None
        comm.compute(seconds=0.5)
        told = comm.probe(until_s=until_s), comm.clock()
        comm.recv(x)
        return told

    (_, (there, clock_s)), _, _ = run_virtual(program, 2, cluster)
    assert there == found
    assert clock_s == pytest.approx(at_s)


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # of the other message
def test_a_message_that_overtakes_is_found_first():
    def program(comm):
        x = np.zeros(1)
        if comm.rank < 2:
            comm.compute(seconds=(5.0, 2.0)[comm.rank])
            comm.send(np.full(1, comm.rank, float), 2)
            return None
        assert comm.probe(until_s=100.0)
        return comm.clock(), comm.recv(x).src

    results, _, _ = run_virtual(program, 3, SIMPLE)
    assert results[2] == (pytest.approx(3.0), 1)


def test_alone():
    comm = SoloCommunicator()
    until_s = comm.clock() + 0.01
    assert not comm.probe(until_s=until_s)
    assert comm.clock() >= until_s
    with pytest.raises(DeadlockError, match="waits for a message with tag 3 from itself, the only rank"):
        comm.probe(tag=3, until_s=inf)
    comm.send(np.zeros(2), 0, tag=3)
    assert comm.probe(tag=3, until_s=inf)
    assert not comm.probe(tag=4)


def test_a_time_that_is_no_number_is_refused(spmd):
    def program(comm):
        with pytest.raises(ArgumentError, match="probe until nan s on rank"):
            comm.probe(until_s=nan)
        return True

    assert all(spmd(program, 2))
    with pytest.raises(ArgumentError, match="probe until nan s on rank 0"):
        SoloCommunicator().probe(until_s=nan)


@pytest.mark.parametrize(
    ("world", "error"), [("virtual", DeadlockError), pytest.param("mpi", DeadlineError, marks=needs_mpi)]
)
def test_to_look_for_ever_has_an_end(world, error):
    with pytest.raises(error, match="rank [01] waits to receive from any rank with tag 3"):
        sd.run(lambda comm: comm.probe(tag=3, until_s=inf), 2, world=world, timeout_s=1.0)


@pytest.mark.parametrize("look", ["probe", "over", "over of any", "over of a send"])
def test_virtual_ranks_that_only_look_are_told_that_no_time_passes(look, monkeypatch):
    """Rank 1 would send, but later: at this instant there is nothing, however often rank 0 looks."""
    monkeypatch.setattr("simdist.comm.virtual.shared._MOST_LOOKS", 1000)

    def program(comm):
        x = np.zeros(1 << 20)
        comm.compute(1.0 + comm.rank)
        if comm.rank == 1:
            comm.recv(x, 0) if look == "over of a send" else comm.send(x, 0)
            return
        wait = {
            "probe": lambda: None,
            "over": lambda: comm.irecv(x, 1),
            "over of any": lambda: comm.irecv(x),
            "over of a send": lambda: comm.isend(x, 1),
        }[look]()
        while not (wait.over if wait else comm.probe()):
            pass

    with pytest.raises(DeadlockError, match="rank 0 has looked 1,000 times for a message at 1 s, when none is there"):
        sd.run(program, 2)


def test_virtual_ranks_may_look_as_often_as_they_like_while_time_passes(monkeypatch):
    monkeypatch.setattr("simdist.comm.virtual.shared._MOST_LOOKS", 1000)

    def program(comm):
        if comm.rank == 1:
            comm.compute(2.0)
            comm.send(np.zeros(1), 0)
            return 0
        looks = 1
        while not comm.probe():
            looks += 1
            comm.compute(1e-3)
        comm.recv(np.zeros(1), 1)
        return looks

    assert sd.run(program, 2).results[0] > 2000


@pytest.mark.parametrize("any_source", [False, True])
def test_a_request_is_over_once_time_has_passed_and_its_message_is_there(any_source):
    def program(comm):
        x = np.full(4, comm.rank)
        if comm.rank == 1:
            comm.compute(0.5)
            comm.send(x, 0)
            return None
        request, looks = comm.irecv(x) if any_source else comm.irecv(x, 1), 0
        while not request.over:
            comm.compute(0.2)
            looks += 1
        request.wait()
        return looks, x[0], comm.clock(), request.over

    looks, received, clock_s, over = sd.run(program, 2).results[0]
    assert (looks, received, clock_s, over) == (3, 1, pytest.approx(0.6), True)
