"""What a program leaves behind: messages without a receive, requests without a wait."""

import warnings

import numpy as np
import pytest
from jobs import needs_mpi

import simdist as sd
from simdist.errors import DeadlockError, UnmatchedMessage

ROWS = {
    "rank 1 never received a message of 24 bytes from rank 0 with tag 3 on 'world'",
    "rank 1 never received a message of 24 bytes from rank 1 on 'world'",
    "rank 1 never received a message of 24 bytes from rank 2 on 'world/1:0'",
    "rank 1 never waited for its irecv from rank 2 with tag 5 on 'world'",
    "rank 1 never waited for its irecv from any rank on 'world'",
    "rank 2 never waited for its isend to rank 0 with tag 1 on 'world'",
}


def leave_behind(comm):
    x, pair = np.ones(3), comm.split(0 if comm.rank else 1, -comm.rank)
    if comm.rank == 0:
        comm.send(x, 1, 3)
        comm.recv(np.empty(3), 2, 1)
    if comm.rank == 1:
        comm.send(x, 1)
        comm.irecv(np.empty(3), 2, 5)
        comm.irecv(np.empty(3))
    if comm.rank == 2:
        comm.isend(x, 0, 1)
        pair.send(x, 1)
    comm.barrier()
    return comm.rank


def rows_of(text):
    return {line.strip() for line in text.splitlines() if " never " in line}


def test_what_is_left_behind_is_told_and_the_results_are_returned():
    with pytest.warns(UnmatchedMessage, match="^the program has ended, but") as told:
        run = sd.run(leave_behind, 3)
    assert run.results == [0, 1, 2]
    assert [rows_of(str(one.message)) for one in told] == [ROWS]
    assert told[0].filename == __file__  # where `run` was called


def test_of_many_the_first_ones_are_told():
    def program(comm):
        if comm.rank == 0:
            for tag in range(20):
                comm.send(np.zeros(1), 1, tag)

    with pytest.warns(UnmatchedMessage, match="with tag 7 on 'world'\n  … and 12 more$"):
        sd.run(program, 2)


def test_what_is_left_behind_many_times_is_told_once():
    def program(comm):
        for _ in range(3):
            comm.isend(np.ones(1), 1 - comm.rank)
            comm.recv(np.empty(1), 1 - comm.rank)

    with pytest.warns(UnmatchedMessage) as told:
        sd.run(program, 2)
    rows = [f"  rank {rank} never waited for its isend to rank {1 - rank} on 'world', 3 times" for rank in (0, 1)]
    assert sorted(str(told[0].message).splitlines()[1:]) == rows


@pytest.mark.parametrize(("sent", "told"), [(False, True), (True, False)])
def test_where_a_message_has_come_nobody_is_told_that_none_was_sent(sent, told):
    """Its tag is wrong, not the order."""

    def program(comm):
        if sent:
            comm.send(np.ones(1), 1 - comm.rank, 1)
        comm.recv(np.empty(1), 1 - comm.rank, 2)

    with pytest.raises(DeadlockError) as error:
        sd.run(program, 2)
    notes = getattr(error.value, "__notes__", [])
    assert any("All wait for messages that none of them has sent" in note for note in notes) == told


@pytest.mark.parametrize("world", ["virtual", pytest.param("mpi", marks=needs_mpi)])
def test_all_that_is_received_and_waited_for_is_not_told(world, capfd):
    def program(comm):
        x, y = np.ones(100_000), np.empty(100_000)
        for dst in range(comm.size):
            requests = comm.irecv(y), comm.isend(x, (comm.rank + dst) % comm.size, dst)
            for request in (*requests, *requests):
                request.wait()
            comm.barrier()

    with warnings.catch_warnings(action="error"):
        sd.run(program, 3, world=world)
    assert capfd.readouterr().err == ""


@needs_mpi
def test_real_ranks_tell_it_each_for_itself(capfd):
    assert sd.run(leave_behind, 3, world="mpi").results == [0, 1, 2]
    err = capfd.readouterr().err
    taken = ROWS - rows_of(err)  # the irecv from any rank takes one of the two messages on its communicator
    assert rows_of(err) < ROWS
    assert [" received " in row and row.endswith("on 'world'") for row in taken] == [True]
    assert [f"simdist: rank {r} has ended, but" in err for r in range(3)] == [False, True, True]
