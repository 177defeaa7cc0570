"""What a server sends, and what it waits for, by a communicator whose messages arrive when the test says so."""

import weakref

import numpy as np
import pytest

from simdist.asynchronous.parameter_server.layout import Layout
from simdist.asynchronous.parameter_server.message import ANSWER, Kind, Message
from simdist.asynchronous.parameter_server.outbox import Outbox
from simdist.comm import Request
from simdist.errors import PeerLost


class Sent(Request):
    """A message in flight. A wait for one to a dead rank fails."""

    def __init__(self, comm, x, dst):
        self.comm, self.x, self.dst = comm, x, dst

    def _finish(self):
        self.comm.waited.append(Message.unpacked(self.x, np.float64).clock)
        if self.dst in self.comm.dead:
            raise PeerLost(f"rank {self.dst}")


class Comm:
    """As much of a communicator as an outbox needs. It keeps weak references to what it is given, as MPI does."""

    def __init__(self, refused=()):
        self.waited, self.dead, self.refused, self.given = [], set(), refused, []

    def isend(self, x, dst, tag):
        assert tag == ANSWER
        if dst in self.refused:
            raise PeerLost(f"rank {dst}")
        self.given.append(weakref.ref(x))
        return Sent(self, x, dst)


def outbox_of(comm):
    return Outbox(comm, Layout(ranks=4, num_servers=2, num_keys=7), lambda worker: None)


def test_an_answer_waits_for_what_was_sent_to_its_worker_before_and_a_notice_does_not():
    comm = Comm()
    outbox = outbox_of(comm)
    for clock, (worker, kind) in enumerate([(0, Kind.WEIGHTS), (1, Kind.WEIGHTS), (0, Kind.OVER), (0, Kind.OVER)]):
        outbox.send(worker, Message(kind, clock))
    assert comm.waited == []
    outbox.send(0, Message(Kind.WEIGHTS, 4))
    assert comm.waited == [0, 2, 3]
    outbox.finish()
    assert sorted(comm.waited) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", ["dropped", "found in a wait", "refused"])
def test_nobody_waits_for_the_dead(how):
    """Nor is the memory of a message taken from MPI, which may still read it."""
    comm = Comm(refused=[3] if how == "refused" else [])
    outbox = outbox_of(comm)
    for worker in (0, 1):
        outbox.send(worker, Message(Kind.WEIGHTS, worker, slice(0, 2), np.ones(2)))
    comm.dead = {3}
    if how == "dropped":
        outbox.drop(1)
    outbox.finish()
    outbox.finish()
    assert comm.waited == ([0, 1] if how == "found in a wait" else [0])
    assert [x() is None for x in comm.given] == [True, False][: len(comm.given)]
