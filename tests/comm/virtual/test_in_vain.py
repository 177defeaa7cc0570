"""Ranks that waited in vain, were told so, and go on."""

from contextlib import suppress

import numpy as np
import pytest

from simdist.cluster import preset
from simdist.comm.virtual.world import run_virtual
from simdist.errors import DeadlockError

HERE = preset("this-machine")
LARGE = HERE.eager_bytes


def run(program, ranks):
    return run_virtual(program, ranks, HERE)


def _send(comm):
    comm.send(np.zeros(LARGE), 1)


def _take(comm):
    comm.recv(np.zeros(LARGE), 0)


def _split(comm):
    comm.split(0)


def _meet(comm):
    comm.peers().meet()


@pytest.mark.parametrize(("in_vain", "after_all"), [(_send, _take), (_split, _split), (_meet, _meet)])
def test_who_has_waited_in_vain_is_not_woken_from_what_it_waits_for_then(in_vain, after_all):
    def program(comm):
        y = np.zeros(1)
        with suppress(DeadlockError):
            comm.recv(y, 0, tag=8) if comm.rank else in_vain(comm)
        if comm.rank:
            after_all(comm)  # what rank 0 waited for
            comm.compute(seconds=1.0)
            comm.send(np.ones(1), 0, tag=9)
        else:
            comm.recv(y, 1, tag=9)
        return y.tolist(), comm.clock()

    y, clock_s = run(program, 2)[0][0]
    assert y == [1.0]
    assert clock_s > 1.0


def test_who_has_waited_for_any_rank_in_vain_is_not_woken_by_what_comes_then():
    def program(comm):
        x, y = np.zeros(1), np.zeros(1)
        with suppress(DeadlockError):
            comm.recv(x, tag=8)
        if comm.rank:
            comm.send(x, 0, tag=8)
            comm.compute(seconds=1.0)
            comm.send(np.ones(1), 0, tag=9)
        else:
            comm.recv(y, 1, tag=9)
            comm.recv(x, tag=8)
        return y.tolist(), comm.clock()

    y, clock_s = run(program, 2)[0][0]
    assert y == [1.0]
    assert clock_s > 1.0


def test_a_receive_may_be_waited_for_in_vain_twice():
    def program(comm):
        request = comm.irecv(np.zeros(1), 1)
        for _ in range(2):
            with pytest.raises(DeadlockError, match="rank 0 waits to receive from rank 1"):
                request.wait()

    run(program, 2)


def test_who_has_waited_for_a_stream_in_vain_is_not_woken_when_that_goes_on():
    def late(comm):
        with suppress(DeadlockError):
            comm.recv(np.zeros(1), 0)

    def program(comm):
        side, y = comm.stream("side"), np.zeros(1)
        work = side.start(late, side.comm)
        with suppress(DeadlockError):
            work.wait()
        if comm.rank:
            comm.compute(seconds=1.0)
            comm.send(np.ones(1), 0)
        else:
            comm.recv(y, 1)
        return y.tolist()

    assert run(program, 2)[0][0] == [1.0]
