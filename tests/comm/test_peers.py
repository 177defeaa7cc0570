"""Meetings: the order that they make, and how a wait at one ends when it cannot end well."""

import os
import re
import time

import numpy as np
import pytest
from jobs import job, needs_mpi

from simdist.cluster import preset
from simdist.comm.peers import ROOM_BYTES
from simdist.comm.solo import SoloCommunicator
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, CollectiveMismatch, DeadlockError


@pytest.mark.one_node
def test_what_was_written_before_a_meeting_is_read_after_it(spmd):
    def program(comm):
        x, peers, seen = comm.shared((comm.size, 1000), np.int64), comm.shadow.peers(), []
        for k in range(100):
            x[comm.rank] = 10**comm.rank * (k % 9 + 1)
            peers.meet()
            seen.append(bool((x.sum(axis=0) == int("1" * comm.size) * (k % 9 + 1)).all()))
            peers.meet()
        return all(seen)

    assert spmd(program, 4) == [True] * 4


@pytest.mark.one_node
def test_every_stream_has_peers_of_its_own(spmd):
    def program(comm):
        side, peers = comm.stream("side"), comm.shadow.peers()
        posts = [
            side.start(lambda k=k: [c[0] for c in side.comm.shadow.peers().post(np.array([k, comm.rank]))])
            for k in range(50)
        ]
        mine = [[c[1] for c in peers.post(np.array([k, comm.rank]))] for k in range(50)]
        return [list(map(int, work.wait())) for work in posts], [list(map(int, ranks)) for ranks in mine]

    for theirs, mine in spmd(program, 3):
        assert theirs == [[k] * 3 for k in range(50)]
        assert mine == [[0, 1, 2]] * 50


def test_only_ranks_of_one_node_meet():
    def program(comm):
        with pytest.raises(ArgumentError, match="the 4 ranks of 'world' are on 2 nodes"):
            comm.peers()

    run_virtual(program, 4, preset("this-machine").with_(devices_per_node=2))


@pytest.mark.one_node
def test_a_matrix_is_not_taken_for_its_first_items(spmd):
    def program(comm):
        peers, x = comm.shadow.peers(), comm.empty((3, 1000), np.int64)
        return [[len(y.reshape(-1)) for y in peers.show(z)] for z in (x, x.reshape(-1)[:3], x.reshape(-1))]

    assert spmd(program, 3) == [[[3000] * 3, [3] * 3, [3000] * 3]] * 3


@pytest.mark.one_node
def test_arrays_of_several_lengths_are_not_shown(spmd):
    def program(comm):
        return comm.shadow.peers().show(comm.empty(3, np.int64)[: 2 + comm.rank]) is None

    assert spmd(program, 2) == [True, True]


@pytest.mark.one_node
def test_what_could_not_be_shown_ahead_leaves_the_next_array_to_be_shown(spmd):
    def program(comm):
        peers, x = comm.shadow.peers(), comm.empty(2, np.int64)
        x[...] = comm.rank
        refused = peers.show(np.zeros(2, np.int64), ahead=True) is None
        return refused, [view.tolist() for view in peers.show(x)]

    assert spmd(program, 2) == [(True, [[0, 0], [1, 1]])] * 2


@pytest.mark.one_node
def test_what_was_shown_ahead_is_forgotten_at_another_meeting(spmd):
    def program(comm):
        peers, x, y = comm.shadow.peers(), comm.empty(2, np.int64), comm.empty(2, np.int64)
        x[...], y[...] = comm.rank, 10 + comm.rank
        peers.show(x, ahead=True)
        peers.meet()
        return [view.tolist() for view in peers.show(y)]

    assert spmd(program, 2) == [[[10, 10], [11, 11]]] * 2


@pytest.mark.one_node
def test_one_place_may_be_shown_as_several_dtypes(spmd):
    def program(comm):
        peers, x = comm.shadow.peers(), comm.empty(4, np.int64)
        return [[str(view.dtype) for view in peers.show(y)] for y in (x, x.view(np.float64), x.view(np.uint64), x)]

    assert spmd(program, 2) == [[[name] * 2 for name in ("int64", "float64", "uint64", "int64")]] * 2


def test_what_is_shown_ahead_takes_one_meeting_and_what_comes_later_another():
    machine = preset("this-machine")

    def program(comm):
        peers, x = comm.shadow.peers(), comm.empty(8, np.int64)
        times = []
        for ahead in (True, False, False):
            x[...] = comm.rank
            start_s = comm.clock()
            views = peers.show(x, ahead)
            assert [view.tolist() for view in views] == [[rank] * 8 for rank in range(comm.size)]
            times.append(round((comm.clock() - start_s) / machine.inside.latency_s))
        return times

    assert run_virtual(program, 3, machine)[0] == [[1, 0, 1]] * 3


def test_alone_there_is_nobody_to_wait_for():
    peers, x = SoloCommunicator().peers(), np.arange(3)
    peers.meet()
    assert peers.show(x)[0] is x
    (copy,) = peers.post(x, x[:1])
    assert copy.tolist() == [0, 1, 2, 0]


def test_virtual_ranks_leave_a_meeting_one_latency_after_the_last_has_come():
    def program(comm):
        comm.compute(seconds=float(comm.rank))
        comm.peers().meet()
        return comm.clock()

    machine = preset("this-machine")
    assert run_virtual(program, 4, machine)[0] == [3.0 + machine.inside.latency_s] * 4


def test_a_virtual_rank_that_does_not_come_is_named():
    def program(comm):
        if comm.rank != 1:
            with comm.span("all_reduce direct"):
                comm.peers().meet()

    with pytest.raises(DeadlockError, match="rank 0 waits for rank 1 to come to a meeting in all_reduce direct"):
        run_virtual(program, 3, preset("this-machine"))


@pytest.mark.one_node
@pytest.mark.mpi  # virtual ranks do not go on after a dispute
def test_ranks_that_say_different_things_all_hear_of_it_and_go_on(spmd):
    def program(comm):
        comm.shadow.peers()
        told = []
        for k in range(3):
            try:
                comm.agree("this" if comm.rank != k else "that")
            except CollectiveMismatch as error:
                told.append(str(error))
        comm.agree("the same")
        return comm.context, told

    found = spmd(program, 3)
    assert found[0] == found[1] == found[2]
    context, told = found[0]
    assert len(told) == 3
    for k, text in enumerate(told):
        assert text.startswith(f"the ranks of {context!r} call different")
        assert re.search(rf"rank {k}: that$", text)


@pytest.mark.one_node
@pytest.mark.mpi
def test_who_posted_in_a_dispute_and_who_did_not_use_the_same_room_next(spmd):
    def program(comm):
        peers = comm.shadow.peers()
        comm.agree("that" if comm.rank else "this", later=True)
        with pytest.raises(CollectiveMismatch):
            peers.meet() if comm.rank else peers.post(np.array([7]))
        return [int(copy[0]) for copy in peers.post(np.array([comm.rank]))]

    assert spmd(program, 3) == [[0, 1, 2]] * 3


@pytest.mark.one_node
@pytest.mark.mpi
def test_what_was_agreed_before_is_not_said_again(spmd):
    def program(comm):
        peers = comm.shadow.peers()
        comm.agree("this")
        with pytest.raises(CollectiveMismatch) as told:
            comm.agree("that") if comm.rank else peers.meet()
        return str(told.value)

    for text in spmd(program, 2):
        assert text.endswith("\n  rank 0: nothing\n  rank 1: that")


@pytest.mark.one_node
@pytest.mark.mpi
def test_a_wait_at_a_meeting_leaves_the_longer_one_that_it_is_part_of(spmd):
    def program(comm):
        peers, line = comm.shadow.peers(), comm.line
        if comm.rank:
            time.sleep(0.05)
        line.waiting = whole = "split", comm, None, 0
        peers.meet()
        kept, line.waiting = line.waiting is whole, None
        return kept

    assert spmd(program, 2) == [True, True]


@pytest.mark.one_node
@pytest.mark.mpi
def test_a_rank_that_looks_late_does_not_take_the_next_call_for_this_one(spmd):
    def program(comm):
        peers = comm.shadow.peers()
        sync = peers._sync
        if comm.rank == 0:
            peers._sync = lambda: (time.sleep(0.02), sync())
        for k in range(4):
            comm.agree(f"call {k}")
        return True

    assert spmd(program, 3) == [True] * 3


@pytest.mark.one_node
def test_a_room_takes_what_it_is_said_to(spmd):
    def program(comm):
        x = np.full(ROOM_BYTES // 8, comm.rank)
        return [bool((copy == r).all()) for r, copy in enumerate(comm.shadow.peers().post(x))]

    assert spmd(program, 2) == [[True] * 2] * 2


@pytest.mark.one_node
def test_objects_are_not_posted(spmd):
    """They ended real ranks by a segmentation fault."""

    def program(comm):
        with pytest.raises(ArgumentError, match=f"post of dtype object on rank {comm.rank}: objects cannot be shared"):
            comm.peers().post(np.array([None]))
        return [copy[0] for copy in comm.peers().post(np.array([comm.rank]))]

    assert spmd(program, 2) == [[0, 1]] * 2


@pytest.mark.one_node
def test_a_ranks_own_copy_stays_until_its_second_post(spmd):
    def program(comm):
        peers = comm.shadow.peers()
        own = peers.post(np.array([1 + comm.rank]))[comm.rank]
        peers.post(np.array([7]))
        return int(own[0])

    assert spmd(program, 2) == [1, 2]


# -- waiting in vain, in jobs of real ranks ----------------------------------------------------------------

SCRIPT = """
import os, signal, sys, threading, time
import numpy as np
import simdist as sd
from simdist.collectives import all_reduce

comm, how = sd.world(), sys.argv[1]
for n in (10, 100_000):
    all_reduce(np.ones(n), comm, algorithm="direct")
    all_reduce(comm.empty(n, np.float64), comm, algorithm="direct")
if comm.rank == 1:
    if how == "kill":
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "leave":
        sys.exit(0)
    time.sleep(60)
all_reduce(np.ones(10), comm, algorithm="direct")
"""


@needs_mpi
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("kill", r"rank 1 .*(died|killed)"),
        ("stop", r"rank 0 waits in all_reduce by direct of float64\[10\], op sum on 'world.collective' for rank 1 in"),
        ("leave", r"rank \d waits in all_reduce by direct .* for rank 1 .*, but rank 1 has left"),
    ],
)
def test_a_wait_for_a_rank_that_does_not_come_ends(how, words, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = job(3, script, how, timeout_s=60, SIMDIST_TIMEOUT_S="3")
    assert done.code != 0
    assert re.search(words, done.output, re.DOTALL), done.output


BOUND = """
import os
import simdist as sd

comm = sd.world()
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[comm.rank]})
peers = comm.peers()
for _ in range(100):
    peers.meet()
print(f"rank {comm.rank} of {len(cores)} cores yields: {peers.yields}")
"""


@needs_mpi
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_ranks_that_are_bound_to_cores_of_their_own_do_not_give_way(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(BOUND)
    done = job(2, script, timeout_s=60)
    assert done.code == 0, done.output
    assert done.output.count("yields: False") == 2, done.output
