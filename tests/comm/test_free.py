"""Groups that are given back: an MPI has room for some 2000, however many a program makes one after the other."""

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import simdist as sd
from simdist.collectives import all_reduce
from simdist.comm.solo import SoloCommunicator
from simdist.comm.watchdog import TICK_S
from simdist.errors import ArgumentError, RankFailed

RANKS = 2
MAPS = Path("/proc/self/maps")


def use(group):
    """Have the group make all that a group can make of its own, and say what comes of it."""
    side, x = group.stream("side"), group.empty(3, np.int64)
    x[:] = 10**group.rank
    all_reduce(x, group, algorithm="direct")
    y = np.array([group.rank])
    side.start(all_reduce, y, side.comm, algorithm="ring").wait()
    half = group.split(group.rank)
    return [int(x[0]), int(y[0]), half.size]


def test_there_is_room_for_any_number_of_groups_one_after_the_other(spmd):
    def program(comm):
        told, threads = [], threading.active_count()
        for _ in range(350):  # at seven groups and windows of MPI's each
            group = comm.split(0)
            told.append(use(group))
            group.free()
        return told == [[11, 1, 1]] * 350, threading.active_count() - threads

    assert spmd(program, RANKS) == [(True, 0)] * RANKS


@pytest.mark.one_node
@pytest.mark.mpi
def test_nothing_is_left_of_a_group_that_was_given_back(spmd):
    def program(comm):
        def left():
            time.sleep(5 * TICK_S)  # until its next round the watchdog keeps the waits that it saw in the last
            gc.collect()
            guard = comm.guard
            groups = sum(type(x).__name__ == "MpiGroup" for x in gc.get_objects())
            maps = MAPS.read_text().count("/dev/shm") if MAPS.exists() else 0
            return groups, maps, len(guard.watchdog.lines), len(guard.drains), len(guard.frees)

        before, group = left(), comm.split(0)
        use(group)
        group.shadow.peers().show(group.empty(3, np.int64))
        group.free()
        del group
        return before, left()

    for before, after in spmd(program, RANKS):
        assert before == after


@pytest.mark.one_node
def test_arrays_that_peers_reach_outlive_their_group(spmd):
    def program(comm):
        group = comm.split(0)
        x, y = group.empty(1000, np.float64), group.shared(2, np.int64)
        y[comm.rank] = x[:] = comm.rank + 1
        view = x[10:]
        del x
        group.free()
        all_reduce(view, comm, algorithm="direct")
        comm.barrier()
        return float(view.min()), float(view.max()), y.tolist()

    assert spmd(program, RANKS) == [(3.0, 3.0, [1, 2])] * RANKS


def test_an_array_that_one_rank_alone_has_kept_outlives_its_group(spmd):
    def program(comm):
        group = comm.split(0)
        x = group.empty(1000, np.float64)
        x[:] = 10**comm.rank
        if comm.rank:
            del x
        group.free()
        return float(x.sum()) if comm.rank == 0 else 0.0

    assert spmd(program, RANKS) == [1000.0, 0.0]


def test_messages_of_other_groups_are_under_way_meanwhile(spmd):
    def program(comm):
        group, x, y = comm.split(0), np.array([7 + comm.rank]), np.zeros(1, int)
        receiving, sending = comm.irecv(y, 1 - comm.rank), comm.isend(x, 1 - comm.rank)
        group.free()
        receiving.wait()
        sending.wait()
        return int(y[0])

    assert spmd(program, RANKS) == [8, 7]


@pytest.mark.mpi
def test_a_group_that_was_given_back_is_not_used_again(spmd):
    def program(comm):
        group = comm.split(0)
        group.free()
        with pytest.raises((RankFailed, ArgumentError), match="on rank"):
            group.sendrecv(np.zeros(1), 0, np.zeros(1), 0)
        group.free()  # nothing is left to give back

    spmd(program, 1)
    spmd(program, RANKS)


@pytest.mark.mpi
def test_the_world_lives_until_the_job_ends(spmd):
    def program(comm):
        del comm
        with pytest.raises(ArgumentError, match="the world cannot be freed on rank"):
            spmd.world.free()

    spmd(program, 1)


@pytest.mark.parametrize("world", [SoloCommunicator(), None], ids=["alone", "virtual"])
def test_a_world_without_mpi_lives_as_long(world):
    with pytest.raises(ArgumentError, match="the world cannot be freed on rank 0"):
        world.free() if world else sd.run(lambda comm: comm.free(), 1)
