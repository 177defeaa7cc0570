"""Watching: what is seen must be what the collectives promise."""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from simdist.arrays import partition, reduction
from simdist.cluster import preset
from simdist.collectives import algorithms, all_reduce, cost
from simdist.collectives.contributions import Code, states
from simdist.collectives.registry import find
from simdist.collectives.watch import Watch, Watched, watched
from simdist.comm import Mesh
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, DeadlockError, UnknownNameError
from simdist.trace import Trace
from simdist.trace.kind import COLLECTIVES

EVERY = [(operation, name) for operation in COLLECTIVES if operation != "barrier" for name in algorithms(operation)]
RANKS = [1, 2, 3, 4, 5, 8]


def last(record):
    """The final state of each rank."""
    found = {s.rank: s for s in record}
    return [found[rank] for rank in sorted(found)]


def case(operation, p, rank):
    items = p if operation == "all_to_all" else 4 * p
    return {"ranks": p, "num_bytes": 8 * items, "itemsize": 8, "rank": rank, "ranks_per_node": 2}


@pytest.mark.slow(but=29)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("operation", "name"), EVERY)
def test_in_the_end_everybody_has_what_the_operation_promises(operation, name, p):
    record = states(watched(operation, name, p, ranks_per_node=2))
    for s in last(record):
        chunk = partition(len(s.goal), p)[s.rank]
        owned = range(chunk.start, chunk.stop)
        if operation in ("reduce", "gather"):
            owned = range(len(s.goal)) if s.rank == 0 else ()
        elif operation in ("all_reduce", "all_gather", "broadcast"):
            owned = range(len(s.goal))
        for i in owned:
            assert set(s.goal[i]) <= set(s.holds[i]), (s.rank, i)
    for s in record:
        for pieces in s.holds:
            assert all(len(set(piece)) == len(piece) for piece in pieces)  # nobody is counted twice


@pytest.mark.slow(but=29)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("operation", "name"), EVERY)
def test_steps_and_messages_are_those_of_the_cost(operation, name, p):
    record = states(watched(operation, name, p, ranks_per_node=2))
    promised = [cost(operation, name, **case(operation, p, rank)) for rank in range(p)]
    steps = max(c.steps for c in promised)
    if name == "double_tree":  # its cost counts a port for one message at a time; here two trees go at once
        assert max(s.step for s in record) <= steps
    else:
        assert max(s.step for s in record) == steps
    sent = Counter(src for s in record for src, _ in s.takes)
    assert [sent[rank] for rank in range(p)] == [c.messages for c in promised]


def after(record, step, rank, p):
    """What a rank holds of each chunk after a step."""
    state = [s for s in record if s.rank == rank and s.step <= step][-1]
    chunks = partition(len(state.holds), p)
    for chunk in chunks:
        assert len(set(state.holds[chunk])) == 1
    return [state.holds[chunk.start] for chunk in chunks]


def test_the_ring_as_in_the_textbook():
    # In step k rank r gets chunk r-1-k, with the contributions of the k ranks before it, and adds its own.
    record = states(watched("all_reduce", "ring", 4))
    for step in range(7):
        for rank in range(4):
            expected = [((rank,),)] * 4
            for k in range(1, min(step, 3) + 1):
                expected[(rank - 1 - k) % 4] = (tuple(sorted((rank - back) % 4 for back in range(k + 1))),)
            for k in range(4, step + 1):
                expected[(rank + 3 - k) % 4] = ((0, 1, 2, 3),)
            assert after(record, step, rank, 4) == expected, (step, rank)


def test_partners_swap_and_fold_in_recursive_doubling():
    record = states(watched("all_reduce", "recursive_doubling", 4))
    assert [after(record, 1, rank, 4)[0] for rank in range(4)] == [((0, 1),), ((0, 1),), ((2, 3),), ((2, 3),)]
    assert [after(record, 2, rank, 4)[0] for rank in range(4)] == [((0, 1, 2, 3),)] * 4


def test_what_is_not_added_up_yet_stays_in_pieces():
    record = states(watched("all_reduce", "naive", 4))
    assert after(record, 2, 1, 4)[0] == ((0,), (1,), (3,))
    assert after(record, 3, 1, 4)[0] == ((0, 1, 2, 3),)


def test_rows_for_a_rank_gather_there():
    record = states(watched("all_to_all", "bruck", 4))
    assert [s.holds[s.rank] for s in last(record)] == [((0,), (1,), (2,), (3,))] * 4


def test_another_root():
    record = states(watched("reduce", "binomial", 5, root=3))
    complete = [s.rank for s in last(record) if s.holds == s.goal]
    assert complete == [3]


def test_options_reach_the_algorithm():
    record = states(watched("all_reduce", "ring", 4, order=[0, 2, 1, 3]))
    assert {(src, s.rank) for s in record for src, _ in s.takes} == {(0, 2), (2, 1), (1, 3), (3, 0)}


def twice(comm):
    """A reduction that counts rank 1 twice."""
    code = Code(2, 1)
    watch = Watch(comm, code, (((0, 1),),), "wrong")
    x, y, group = code.of(comm.rank), np.empty(1, np.int64), Watched(comm, watch)
    watch.track(x)
    for _ in range(2):
        if comm.rank == 1:
            group.send(x, 0)
        else:
            group.recv(y, 1)
            x += y
    watch.record()


def test_a_contribution_that_goes_in_twice_shows():
    _, spans, _ = run_virtual(twice, 2, preset("this-machine"))
    assert last(states(Trace(spans, 2)))[0].holds == (((0, 1, 1),),)


def by_axes(x, comm):
    """An all-reduce along one axis of a mesh, then along the other."""
    mesh = Mesh(comm, dp=2, tp=2)
    for axis in (mesh.tp, mesh.dp):
        comm.barrier()
        all_reduce(x, axis, algorithm="ring")


def test_a_watched_communicator_can_be_used_as_any_other():
    record = states(watched("all_reduce", by_axes, 4))
    assert all(s.holds == s.goal for s in last(record))
    assert [after(record, 4, rank, 4)[0] for rank in range(4)] == [((0, 1),), ((0, 1),), ((2, 3),), ((2, 3),)]


def waits(comm):
    Watched(comm, Watch(comm, Code(2, 1), ((),), "")).recv(np.empty(1, np.int64), 1 - comm.rank)


def test_a_deadlock_is_found_as_without_watching():
    with pytest.raises(DeadlockError, match="rank 0 waits for rank 1 waits for rank 0"):
        run_virtual(waits, 2, preset("this-machine"))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (("all_reduce", "rng", 4), {}, UnknownNameError, "ring"),
        (("all_reduce", "ring", 4), {"rows": 2}, UnknownNameError, "unknown option of all_reduce ring 'rows'"),
        (("reduce_all", "ring", 4), {}, UnknownNameError, "all_reduce"),
        (("barrier", "dissemination", 4), {}, ArgumentError, "moves no data"),
        (("all_reduce", "ring", 17), {}, ArgumentError, "17 ranks; needs 1 to 16"),
        (("all_reduce", "ring", 0), {}, ArgumentError, "0 ranks"),
        (("broadcast", "binomial", 4), {"root": 4}, ArgumentError, "root 4"),
        (("broadcast", "binomial", 4), {"root": -1}, ArgumentError, "root -1"),
        (("broadcast", "binomial", 4), {"root": 1.5}, ArgumentError, "root is 1.5"),
        (("broadcast", "binomial", 4.5), {}, ArgumentError, "ranks is 4.5"),
        (("broadcast", "binomial", 4), {"ranks_per_node": -1}, ArgumentError, "ranks_per_node is -1"),
    ],
)
def test_what_cannot_be_watched(arguments, options, error, text):
    with pytest.raises(error, match=text):
        watched(*arguments, **options)


def test_a_function_of_ones_own_is_watched_as_the_registered_ones_are():
    def ring(x, comm):
        find("all_reduce", "ring").run(x, comm, reduction("sum"))

    def ring_and_more(x, comm):
        note = np.ones(3, np.uint8)  # what it says otherwise does not count
        comm.sendrecv(note, (comm.rank + 1) % comm.size, note.copy(), (comm.rank - 1) % comm.size)
        comm.barrier()
        ring(x, comm)

    assert states(watched("all_reduce", ring, 5)) == states(watched("all_reduce", "ring", 5))
    assert [s.holds for s in last(states(watched("all_reduce", ring_and_more, 5)))] == [
        s.holds for s in last(states(watched("all_reduce", "ring", 5)))
    ]
    assert states(watched("all_reduce", partial(ring), 5))[0].title == "all_reduce of your own"
    with pytest.raises(UnknownNameError, match="all_to_all"):
        watched("all_to_all", ring, 4)
