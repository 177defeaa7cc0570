"""Memory that the ranks of a node have in common."""

import importlib
import time

import numpy as np
import pytest
from jobs import needs_mpi

import simdist as sd
from simdist.cluster import preset
from simdist.comm.shared_room import Room
from simdist.comm.solo import SoloCommunicator
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, CollectiveMismatch, SharedMemoryFull

HERE = preset("this-machine")


@pytest.mark.one_node
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_every_rank_sees_what_the_others_wrote(spmd, p):
    def program(comm):
        x, y = comm.shared((2, comm.size), np.int64), comm.shared(np.int64(3), np.float32)
        zero = not x.any() and not y.any()
        comm.barrier()
        x[:, comm.rank] = 10**comm.rank
        if comm.rank == comm.size - 1:
            y[...] = 7
        comm.fence()
        comm.barrier()
        comm.fence()
        return zero, x.copy(), y.copy()

    for zero, x, y in spmd(program, p):
        assert zero
        assert x.tolist() == [[10**r for r in range(p)]] * 2
        assert y.dtype == np.float32 and y.tolist() == [7, 7, 7]


@pytest.mark.one_node
@pytest.mark.mpi
def test_what_a_fast_rank_writes_is_not_overwritten_by_the_zeros_of_a_slow_one(spmd):
    def program(comm):
        window = comm._memory.window
        if comm.rank == 0:
            comm._memory.window = lambda num_bytes: (window(num_bytes), time.sleep(0.1))[0]
        x = comm.shared(comm.size, np.int64)
        x[comm.rank] = 10**comm.rank
        comm.fence()
        comm.barrier()
        comm.fence()
        return x.tolist()

    assert spmd(program, 3) == [[1, 10, 100]] * 3


def test_an_empty_one(spmd):
    assert [x.shape for x in spmd(lambda comm: comm.shared((0, 3), np.int8), 2)] == [(0, 3)] * 2


def test_each_node_has_its_own():
    def program(comm):
        x = comm.shared(4, np.int64)
        comm.barrier()
        x[comm.rank] = 10**comm.rank
        comm.barrier()
        return x.tolist()

    assert run_virtual(program, 4, HERE.with_(devices_per_node=2))[0] == [[1, 10, 0, 0]] * 2 + [[0, 0, 100, 1000]] * 2


@needs_mpi
def test_each_node_of_real_ranks_has_its_own(monkeypatch):
    monkeypatch.setenv("SIMDIST_RANKS_PER_NODE", "2")

    def program(comm):
        x, y = comm.shared(4, np.int64), comm.empty(3, np.int64)
        x[comm.rank] = 10**comm.rank
        y[...] = comm.rank
        node, across = comm.split(comm.rank // 2, -comm.rank), comm.split(comm.rank % 2)
        views = node.peers().show(y)
        with pytest.raises(ArgumentError, match=f"the 2 ranks of '{across.context}' are on 2 nodes"):
            across.peers()
        across.free()
        return x.tolist(), list(node.nodes), list(node.ranks), [int(view[0]) for view in views]

    assert sd.run(program, 4, world="mpi").results == [
        *[([1, 10, 0, 0], [0, 0], [1, 0], [1, 0])] * 2,
        *[([0, 0, 100, 1000], [1, 1], [3, 2], [3, 2])] * 2,
    ]


@needs_mpi
def test_where_one_node_has_no_room_the_ranks_of_all_are_told(monkeypatch):
    def program(comm):
        if comm.node == 1:
            mpi_memory = importlib.import_module("simdist.comm.mpi_memory")  # which loads MPI
            mpi_memory.room = lambda: Room(0.0, 0.0)
        try:
            comm.shared(8, np.float64)
        except SharedMemoryFull as error:
            return str(error)

    monkeypatch.setenv("SIMDIST_RANKS_PER_NODE", "2")
    words, *others = sd.run(program, 3, world="mpi").results
    assert others == [words] * 2 and "/dev/shm has 0 MB free of 0" in words


@pytest.mark.one_node
def test_each_group_has_its_own(spmd):
    def program(comm):
        pair = comm.split(comm.rank // 2, comm.rank)
        x = pair.shared(1, np.int64)
        pair.barrier()
        if pair.rank == 0:
            x[0] = comm.rank
        pair.fence()
        pair.barrier()
        pair.fence()
        return int(x[0])

    assert spmd(program, 4) == [0, 0, 2, 2]


def test_a_fence_puts_reads_and_writes_in_the_order_of_time():
    def program(comm):
        x, seen = comm.shared(1, np.int64), []
        for _ in range(4):
            comm.compute(seconds=1.0 + 0.25 * comm.rank)
            comm.fence()
            seen.append((comm.clock(), int(x[0])))
            x[0] += 1
        return seen

    (first, second), _, _ = run_virtual(program, 2, HERE)
    assert [n for _, n in sorted(first + second)] == list(range(8))


def test_ranks_must_ask_for_the_same(spmd):
    with pytest.raises(CollectiveMismatch, match="shared of shape 1 and dtype int8"):
        spmd(lambda comm: comm.shared(1 + comm.rank, np.int8), 2)


def test_objects_cannot_be_shared(spmd):
    with pytest.raises(ArgumentError, match="objects cannot be shared"):
        spmd(lambda comm: comm.shared(1, object), 2)
    with pytest.raises(ArgumentError, match="objects cannot be shared"):
        SoloCommunicator().shared(1, object)
