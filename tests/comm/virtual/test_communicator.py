"""A virtual rank's communicator: what it refuses, keeps and counts."""

import numpy as np
import pytest

from simdist.cluster import preset
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, ArrayError

HERE = preset("this-machine")


def run(program, ranks):
    return run_virtual(program, ranks, HERE)


@pytest.mark.parametrize("call", ["recv", "irecv", "sendrecv"])
@pytest.mark.parametrize("posted_first", [True, False])
def test_a_read_only_array_is_told_to_its_receiver(call, posted_first):
    def program(comm):
        x, y = np.zeros(3), np.zeros(3)
        y.flags.writeable = False
        comm.compute(seconds=float((comm.rank == 0) == posted_first))
        if comm.rank == 0:
            comm.sendrecv(x, 1, np.empty(3), 1) if call == "sendrecv" else comm.send(x, 1)
        else:
            comm.sendrecv(x, 0, y, 0) if call == "sendrecv" else getattr(comm, call)(y, 0)

    with pytest.raises(ArrayError, match=f"{call.removeprefix('i')} on rank 1: the array to receive into is read-only"):
        run(program, 2)


@pytest.mark.parametrize("number", [3.5, np.float64(3.5)])
def test_an_exchange_of_what_is_no_array(number):
    for x, y in ((number, np.zeros(1)), (np.zeros(1), number)):
        with pytest.raises(ArrayError, match=r"sendrecv of float(64)? .*3\.5\)? on rank 0: needs an array"):
            run(lambda comm, x=x, y=y: comm.sendrecv(x, 0, y, 0), 1)


def test_a_tag_below_0():
    with pytest.raises(ArgumentError, match="tag -1 on rank 0: needs a whole number, 0 to 536870911"):
        run(lambda comm: comm.send(np.zeros(1), 0, tag=-1), 1)


def test_a_record_that_is_ended_halfway():
    def program(comm):
        other = 1 - comm.rank
        for on in (True, False, True):
            comm.recorder.on = on
            comm.sendrecv(np.zeros(1), other, np.zeros(1), other)
            comm.isend(np.zeros(1), other, 1).wait()
            comm.recv(np.zeros(1), other, 1)

    assert len(run(program, 2)[1]) == 2 * 2 * 4


def test_computing_for_a_short_float_leaves_the_clock_a_long_one():
    def program(comm):
        comm.compute(seconds=1e6)
        comm.compute(seconds=np.float32(0.25))
        comm.compute(flops=np.float32(1e6))
        return comm.clock()

    (clock_s,) = run(program, 1)[0]
    assert type(clock_s) is float
    assert clock_s == 1e6 + 0.25 + 1e6 / HERE.device.flops_per_s


@pytest.mark.parametrize("work", [{"seconds": -1}, {"seconds": "a"}, {"flops": -1.0}, {"bytes": np.inf}])
def test_work_that_cannot_be(work):
    with pytest.raises(ArgumentError, match="rank 0 cannot compute for .*: needs 0 or more, and finite"):
        run(lambda comm: comm.compute(**work), 1)


def test_a_clock_has_an_end():
    def program(comm):
        for _ in range(2):
            comm.compute(seconds=1.5e308)

    with pytest.raises(ArgumentError, match="rank 0 cannot compute for inf seconds"):
        run(program, 1)
