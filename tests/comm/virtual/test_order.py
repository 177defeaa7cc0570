"""Who goes on when: streams, groups, deadlocks, failures."""

import contextlib
import gc
import math
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from simdist.arrays import phantom
from simdist.cluster import Link, preset
from simdist.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce, reduce_scatter
from simdist.comm import ANY
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, ArrayError, CollectiveMismatch, DeadlockError, MessageMismatch, RankFailed

HERE = preset("this-machine")


def run(program, ranks):
    return run_virtual(program, ranks, HERE)[0]


def ring(x, comm):
    all_reduce(x, comm, algorithm="ring")


# -- streams ------------------------------------------------------------------------------------------


def test_a_second_stream_hides_communication_behind_compute():
    def program(comm):
        side = comm.stream("communication")
        x = np.ones(100_000)
        work = side.start(ring, x, side.comm)
        comm.compute(seconds=1.0)
        busy_until = comm.clock()
        work.wait()
        return busy_until, comm.clock(), x[0]

    assert run(program, 4) == [(1.0, 1.0, 4.0)] * 4


def test_work_on_a_stream_is_in_order_and_starts_when_it_is_asked_for():
    def program(comm):
        side, times = comm.stream("side"), []

        def busy(name):
            side.comm.compute(seconds=2.0)
            times.append((name, side.comm.clock()))
            return name

        works = [side.start(busy, "a")]
        comm.compute(seconds=1.0)
        works.append(side.start(busy, "b"))
        comm.compute(seconds=5.0)
        works.append(side.start(partial(busy, "c")))
        assert [w.wait() for w in works] == ["a", "b", "c"]
        comm.compute(seconds=5.0)
        side.start(busy, "d").wait()
        return times, comm.clock()

    assert run(program, 1)[0] == ([("a", 2.0), ("b", 4.0), ("c", 8.0), ("d", 15.0)], 15.0)


def test_a_stream_has_one_fiber_however_often_it_is_used():
    def program(comm):
        side = comm.stream("side")
        for _ in range(3):
            side.start(side.comm.compute, seconds=1.0).wait()
        return len(comm.scheduler.fibers)

    assert run(program, 1) == [2]


def test_a_wait_for_a_stream_is_on_the_record():
    def program(comm):
        work = comm.stream("side").start(lambda: comm.compute(seconds=2.0))
        comm.compute(seconds=0.5)
        work.wait()
        work.wait()

    waits = [s for s in run_virtual(program, 1, HERE)[1] if s.name.startswith("wait")]
    assert [(s.stream, s.name, s.start_s, s.end_s) for s in waits] == [("main", "wait for side", 0.5, 2.0)]


def test_a_collective_on_a_stream_and_one_on_the_main_line_do_not_mix():
    def program(comm):
        side = comm.stream("side")
        x, y = np.full(7, 10**comm.rank), np.full(7, 2 * 10**comm.rank)
        work = side.start(ring, x, side.comm)
        ring(y, comm)
        work.wait()
        return x[0], y[0]

    assert run(program, 3) == [(111, 222)] * 3


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # of the other message
def test_a_stream_may_be_called_collective():
    def program(comm):
        side, y = comm.stream("collective"), np.zeros(1)
        if comm.rank == 0:
            side.start(side.comm.send, np.full(1, 2.0), 1).wait()
            comm.shadow.send(np.ones(1), 1)
        else:
            comm.shadow.recv(y, 0)
        return y[0]

    assert run(program, 2) == [0, 1]


def test_two_streams_of_one_name_are_two():
    """As two replicas have that are trained in turn: neither messages nor groups are the other's."""

    def program(comm):
        r, sides = comm.rank, [comm.stream("side") for _ in range(2)]
        groups = [sides[i].start(sides[i].comm.split, color).wait() for i, color in enumerate((r // 2, r % 2))]
        x = [np.array([10**r]), np.array([2 * 10**r])]
        for work in [sides[i].start(ring, x[i], sides[i].comm) for i in ((0, 1) if r % 2 else (1, 0))]:
            work.wait()
        return [list(group.ranks) for group in groups], [int(y[0]) for y in x]

    assert run(program, 4) == [
        ([[0, 1], [0, 2]], [1111, 2222]),
        ([[0, 1], [1, 3]], [1111, 2222]),
        ([[2, 3], [0, 2]], [1111, 2222]),
        ([[2, 3], [1, 3]], [1111, 2222]),
    ]


def test_what_a_stream_raises_is_raised_by_wait_and_by_the_run_if_nobody_waits():
    def heard(comm):
        work = comm.stream("side").start(lambda: 1 / 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                work.wait()
        return "went on"

    def unheard(comm):
        comm.stream("side").start(lambda: 1 / 0)

    assert run(heard, 2) == ["went on"] * 2
    with pytest.raises(ZeroDivisionError) as caught:
        run(unheard, 2)
    assert "stream side" in caught.value.__notes__[0]


# -- groups -------------------------------------------------------------------------------------------


def test_split_by_color_and_key():
    def program(comm):
        group = comm.split(comm.rank % 2, -comm.rank)
        x = np.array([10**comm.rank])
        ring(x, group)
        return group.rank, list(group.ranks), int(x[0])

    assert run(program, 5) == [
        (2, [4, 2, 0], 10101),
        (1, [3, 1], 1010),
        (1, [4, 2, 0], 10101),
        (0, [3, 1], 1010),
        (0, [4, 2, 0], 10101),
    ]


def test_a_rank_without_a_color_has_no_group():
    assert run(lambda comm: comm.split(None if comm.rank else 0) is None, 3) == [False, True, True]


def test_a_color_that_is_no_whole_number():
    with pytest.raises(ArgumentError, match="color 'red' on rank 0: needs a whole number"):
        run(lambda comm: comm.split("red"), 2)


def test_groups_of_groups_know_global_ranks():
    def program(comm):
        return list(comm.split(comm.rank // 4).split(comm.rank % 2).ranks)

    assert run(program, 8)[5] == [5, 7]


def test_messages_of_the_program_and_of_a_collective_do_not_mix():
    def program(comm):
        pending = comm.irecv(np.zeros(1, int))  # from anybody: must not catch the collective's messages
        x = np.full(3, 10**comm.rank)
        ring(x, comm)
        comm.send(np.array([comm.rank]), (comm.rank + 1) % comm.size)
        return pending.wait().src, x[0]

    assert run(program, 3) == [(2, 111), (0, 111), (1, 111)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_nobody_leaves_a_barrier_before_the_last_has_come(ranks):
    def program(comm):
        comm.compute(seconds=float(comm.rank))
        comm.barrier()
        return comm.clock()

    assert min(run(program, ranks)) >= ranks - 1


def test_exchange_gives_every_note_to_everyone():
    assert run(lambda comm: comm.exchange(f"n{comm.rank}"), 3) == [["n0", "n1", "n2"]] * 3


def test_split_groups_of_ranks_that_call_it_at_different_times():
    def program(comm):
        comm.compute(seconds=float(comm.rank))
        half = comm.split(comm.rank // 2, -comm.rank)
        return half.rank, list(half.ranks), comm.clock()

    assert run(program, 4) == [(1, [1, 0], 3.0), (0, [1, 0], 3.0), (1, [3, 2], 3.0), (0, [3, 2], 3.0)]


# -- turns --------------------------------------------------------------------------------------------


def test_those_due_at_one_instant_go_in_the_order_of_their_ranks():
    order = []

    def program(comm):
        comm.compute(seconds=2.0 if comm.rank % 2 else 1.0)
        comm.fence()
        order.append(comm.rank)
        comm.compute(seconds=1.0 if comm.rank % 2 else 2.0)
        comm.fence()
        order.append(comm.rank)

    run(program, 6)
    assert order == [0, 2, 4, 1, 3, 5, 5, 0, 1, 2, 3, 4]  # nobody is due before 5's clock, so it goes on


def test_a_rank_whose_message_came_does_not_overtake_those_at_earlier_times():
    # Rank 1 has its message, which arrives after a second, before rank 3 has done anything; both send to rank 2.
    cluster = HERE.with_(inside=Link(latency_s=1.0, bytes_per_s=1e9))

    def program(comm):
        x = np.full(1, comm.rank)
        if comm.rank == 2:
            return [comm.recv(x).src for _ in range(2)]
        if comm.rank == 0:
            comm.compute(seconds=0.25)
            comm.send(x, 1)
        elif comm.rank == 1:
            comm.recv(x, 0)
            comm.send(x, 2)
        else:
            comm.compute(seconds=0.5)
            comm.fence()
            comm.compute(seconds=0.5)
            comm.send(x, 2)

    assert run_virtual(program, 4, cluster)[0][2] == [3, 1]


def test_a_rank_that_sends_on_does_not_outrun_the_one_it_has_sent_to():
    """Rank 0's second message would hold rank 2's port before rank 1's, were it sent as soon as rank 0 could."""

    def program(comm):
        x = np.zeros(1)
        if comm.rank == 2:
            return [comm.recv(x, src) and comm.clock() for src in (1, 0)]
        if comm.rank == 1:
            comm.recv(x, 0)
            comm.send(x, 2)
        else:
            comm.compute(seconds=0.01)
            comm.fence()  # until the others wait
            comm.send(x, 1)
            comm.compute(seconds=1.0)
            comm.send(x, 2)

    there_s = run(program, 3)[2]
    assert there_s[0] < 0.1 < 1.0 < there_s[1]


@pytest.mark.parametrize("work", [{"seconds": -1.0}, {"seconds": math.nan}, {"seconds": math.inf}])
def test_no_clock_goes_back(work):
    with pytest.raises(ArgumentError, match="rank 0 cannot compute for"):
        run(lambda comm: comm.compute(**work), 2)


def left_by(program, error=None):
    """What a run leaves to the garbage collector of its communicators and, if it succeeds, its scheduler."""
    kept = []

    def keeping(comm):
        kept.append(weakref.ref(comm))
        if error is None:
            kept.append(weakref.ref(comm.scheduler))
        program(comm)

    gc.collect()
    gc.disable()
    try:
        if error is None:
            run(keeping, 4)
        else:
            with contextlib.suppress(error):  # pytest.raises would keep it
                run(keeping, 4)
        return [ref() for ref in kept if ref() is not None]
    finally:
        gc.enable()


def test_a_run_leaves_nothing_in_memory():
    def program(comm):
        ring(np.ones(3), comm)
        comm.recv(np.ones(1), 0) if comm.rank else [comm.send(np.ones(1), dst) for dst in range(1, comm.size)]
        side = comm.stream("side")
        side.start(ring, np.ones(3), side.comm).wait()

    assert left_by(program) == []


def raises(comm):
    ring(np.ones(3), comm)
    raise ZeroDivisionError


def fails_on_a_stream(comm):
    comm.stream("side").start(raises, comm.stream("side").comm).wait()


def fails_unheard(comm):
    comm.stream("side").start(raises, comm.stream("side").comm)


def deadlocks(comm):
    comm.recv(np.ones(3), (comm.rank + 1) % comm.size)


def sends_too_much(comm):
    comm.isend(np.ones(3), (comm.rank + 1) % comm.size).wait()
    comm.recv(np.ones(2), (comm.rank - 1) % comm.size)


def differs(comm):
    ring(np.ones(3 + comm.rank), comm)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (raises, ZeroDivisionError),
        (fails_on_a_stream, ZeroDivisionError),
        (fails_unheard, ZeroDivisionError),
        (deadlocks, DeadlockError),
        (sends_too_much, MessageMismatch),
        (differs, CollectiveMismatch),
        (lambda comm: sys.exit(comm.rank), RankFailed),
    ],
)
def test_nor_does_one_that_fails(program, error):
    """Its error has frames in its traceback that must not refer to it, or all arrays would live on with them."""
    assert left_by(program, error) == []


def test_runs_of_several_threads_leave_the_garbage_collector_as_it_was():
    """The first one ends while the second is under way."""
    before, seen = gc.get_threshold(), []
    first, second, over = threading.Event(), threading.Event(), threading.Event()

    def begins(comm):
        first.set()
        assert second.wait(60)

    def ends(comm):
        second.set()
        assert over.wait(60)
        seen.append(gc.get_threshold())

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(run, begins, 1)
        assert first.wait(60)
        other = threads.submit(run, ends, 1)
        one.result()
        over.set()
        other.result()
    assert seen[0][0] >= 100_000
    assert gc.get_threshold() == before


# -- failures -----------------------------------------------------------------------------------------


def test_a_deadlock_names_the_cycle():
    def program(comm):
        if comm.rank < 3:
            comm.recv(np.empty(1), src=(comm.rank + 1) % 3)

    with pytest.raises(DeadlockError, match=r"(rank \d waits for ){3}rank \d") as caught:
        run(program, 4)
    assert "rank 2 waits to receive from rank 0" in str(caught.value)
    assert "rank 3" not in str(caught.value)
    assert "has ended" not in str(caught.value)  # who waits has not


def test_a_deadlock_names_the_tag_of_the_message_that_has_come():
    def program(comm):
        x = np.zeros(1)
        if comm.rank == 1:
            comm.send(x, 0, tag=1)
        if comm.rank == 0:
            comm.recv(x, 1, tag=2)

    with pytest.raises(DeadlockError) as caught:
        run(program, 2)
    row = "  rank 0 waits to receive from rank 1 with tag 2; a message with tag 1 has come from it; rank 1 has ended"
    assert str(caught.value).splitlines()[1:] == [row]


def test_who_waits_for_any_rank_waits_for_all_but_itself():
    with pytest.raises(DeadlockError, match="^deadlock: rank 0 waits for rank 1 waits for rank 0\n"):
        run(lambda comm: comm.recv(np.empty(1)), 2)


@pytest.mark.parametrize(
    ("wait", "row"),
    [
        (lambda comm: comm.recv(np.empty(1)), "waits to receive from any rank; ranks 1, 2 have ended"),
        (
            lambda comm: comm.split(0),
            "waits for ranks 1, 2 to come to a split on 'world'; ranks 1, 2 have ended",
        ),
    ],
    ids=["recv", "split"],
)
def test_a_deadlock_names_all_those_who_have_ended(wait, row):
    with pytest.raises(DeadlockError) as caught:
        run(lambda comm: wait(comm) if comm.rank == 0 else None, 3)
    assert str(caught.value).splitlines()[1:] == [f"  rank 0 {row}"]


def test_who_still_waits_on_a_stream_has_not_ended():
    def program(comm):
        side = comm.stream("side")
        side.start(side.comm.recv, np.zeros(1), 1 - comm.rank)

    with pytest.raises(DeadlockError) as caught:
        run(program, 2)
    rows = [f"  rank {r} (stream side) waits to receive from rank {1 - r}" for r in (0, 1)]
    assert str(caught.value).splitlines()[1:] == rows


@pytest.mark.parametrize(("p", "left_out", "more"), [(16, 0, 0), (17, 1, 1), (20, 4, 4)])
def test_a_long_deadlock_is_told_in_short(p, left_out, more):
    with pytest.raises(DeadlockError) as caught:
        run(lambda comm: comm.recv(np.empty(1), src=(comm.rank + 1) % p), p)
    head, *rows = str(caught.value).splitlines()
    shown = [f"rank {r}" for r in range(16)] + ["…"] * (left_out > 0) + ["rank 0"]
    assert head == "deadlock: " + " waits for ".join(shown)
    assert [row for row in rows if "rank" not in row] == [f"  … and {more} more"] * (more > 0)
    assert len(rows) == 16 + (more > 0)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("send", "All send before they receive: use sendrecv, or isend, then recv, then the wait of isend's request"),
        ("recv", "All wait for messages that none of them has sent: one has to send before it receives"),
        ("either", None),
    ],
)
def test_ranks_that_all_send_or_all_receive_first_are_told_what_to_do(first, told):
    def program(comm):
        x, y, peer = np.zeros(10), np.zeros(10), (comm.rank + 1) % 3
        if first == "send" or (first == "either" and comm.rank < 2):
            comm.send(x, peer)
        else:
            comm.recv(y, peer)

    with pytest.raises(DeadlockError) as caught:
        run_virtual(program, 3, HERE.with_(eager_bytes=0))
    assert [note for note in caught.value.__notes__ if note.startswith("All")] == [told] * (told is not None)


def test_who_waits_for_others_is_not_told_of_their_dispute():
    def program(comm):
        x, pair = np.full(1, comm.rank), comm.split(comm.rank // 2)
        if comm.rank < 2:
            with pytest.raises(CollectiveMismatch, match="what rank 0 calls(.|\n)*what rank 1 calls"):  # noqa: PT012
                pair.agree(f"what rank {comm.rank} calls")
                pair.recv(x)
            x += 7
            if comm.rank == 1:
                comm.send(x, 2)
        else:
            comm.recv(x, 1)
        return int(x[0])

    assert run(program, 3) == [7, 8, 8]


def test_who_waits_for_a_stream_of_its_own_waits_for_whom_that_waits_for():
    def program(comm):
        side = comm.stream("side")
        side.start(side.comm.recv, np.zeros(1), 1 - comm.rank).wait()

    with pytest.raises(DeadlockError, match="^deadlock: rank 0 waits for rank 1 waits for rank 0\n"):
        run(program, 2)


def test_a_deadlock_of_very_many_ranks_is_told_soon_and_briefly():
    def chain(comm):  # without a cycle: what is followed once is not followed again
        if comm.rank < comm.size - 1:
            comm.recv(np.empty(1), src=comm.rank + 1)

    def ring(comm):
        comm.recv(np.empty(1), src=(comm.rank + 1) % comm.size)

    with pytest.raises(DeadlockError, match="no rank can go on"):
        run(chain, 4000)
    with pytest.raises(DeadlockError, match="waits for rank 15 waits for … waits for rank 0\n") as caught:
        run(ring, 4000)
    assert len(str(caught.value)) < 2000


def test_blocking_sends_of_large_arrays_deadlock():
    def program(comm):
        x = np.zeros(100_000)
        comm.send(x, 1 - comm.rank)
        comm.recv(x, 1 - comm.rank)

    with pytest.raises(DeadlockError, match="waits to send 800000 bytes to rank"):
        run(program, 2)


def test_every_rank_gets_the_deadlock_and_may_go_on():
    def program(comm):
        try:
            comm.recv(np.empty(1))
        except DeadlockError as error:
            return str(error).splitlines()[0]

    assert len(set(run(program, 3))) == 1


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
@pytest.mark.parametrize(
    ("wait", "answer"),
    [
        (lambda comm: comm.recv(np.empty(1), 0), lambda comm: comm.send(np.full(1, 5.0), 1)),
        (lambda comm: comm.recv(np.empty(1)), lambda comm: comm.send(np.full(1, 5.0), 1)),
        (lambda comm: comm.irecv(np.empty(1), 0).wait(), lambda comm: comm.send(np.full(1, 5.0), 1)),
        (lambda comm: comm.send(np.zeros(100), 0), lambda comm: comm.recv(np.empty(100), 1)),
        (lambda comm: comm.exchange(""), lambda comm: comm.exchange("")),
    ],
    ids=["recv", "any", "request", "send", "meeting"],
)
def test_what_ends_a_wait_that_has_failed_wakes_nobody(wait, answer):
    """Rank 0 hears of the deadlock first, and does what rank 1 has waited for before that hears of it."""

    def program(comm):
        with contextlib.suppress(DeadlockError):
            wait(comm) if comm.rank else comm.recv(np.empty(1), 1, tag=9)
        if comm.rank == 0:
            answer(comm)
            comm.compute(10.0)
            comm.send(np.full(1, 7.0), 1, tag=8)
            return None
        x = np.zeros(1)
        comm.recv(x, 0, tag=8)
        return x[0], comm.clock() // 1

    assert run_virtual(program, 2, HERE.with_(eager_bytes=100))[0][1] == (7, 10)


@pytest.mark.parametrize("culprit", [0, 1, 3])
@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_a_mismatch_is_the_same_on_all_ranks_and_says_who_said_what(culprit):
    def program(comm):
        x = np.ones(4)
        try:
            if comm.rank == culprit:
                broadcast(x, comm, algorithm="linear") if culprit == 3 else all_reduce(x, comm, "max", "ring")
            else:
                ring(x, comm)
        except CollectiveMismatch as error:
            return str(error)

    told = set(run(program, 4))
    assert len(told) == 1
    assert f"rank {culprit}: " in told.pop()


def test_a_group_whose_ranks_disagreed_raises_that_again():
    def program(comm):
        told = []
        for op in (("sum", "max")[comm.rank % 2], "sum"):
            with pytest.raises(CollectiveMismatch) as caught:
                all_reduce(np.ones(4), comm, op)
            told.append(str(caught.value))
        return told

    one, again = run(program, 3)[0]
    assert one == again


def test_swapped_order_is_a_mismatch():
    def program(comm):
        x = np.ones(4)
        calls = [lambda: ring(x, comm), lambda: broadcast(x, comm)]
        for call in calls if comm.rank else calls[::-1]:
            call()

    with pytest.raises(CollectiveMismatch, match="ranks 1, 2: all_reduce (.|\n)*rank 0: broadcast "):
        run(program, 3)


def test_a_failing_rank_ends_the_run_and_unwinds_the_others():
    unwound = []

    def program(comm):
        try:
            if comm.rank == 2:
                comm.compute(seconds=1.0)
                comm.send(np.empty(1), 2)
                raise KeyError("mine")
            comm.recv(np.empty(1))
        finally:
            unwound.append(comm.rank)
            if comm.rank == 3:
                raise ValueError("in cleaning up")

    with pytest.raises(KeyError, match="mine") as caught:
        run(program, 4)
    assert sorted(unwound) == [0, 1, 2, 3]
    assert "rank 2 of 4" in caught.value.__notes__[0]


@pytest.mark.parametrize("early", [0, 1])
def test_of_two_that_fail_the_first_in_virtual_time_is_told(early):
    """Also where the later one need not wait for its turn, and so gets there first."""

    def program(comm):
        comm.compute(5.0 if comm.rank == early else 10.0)
        if comm.rank == early:
            comm.fence()
        raise ValueError(comm.rank)

    with pytest.raises(ValueError, match=f"^{early}\n") as caught:
        run(program, 2)
    assert caught.value.__notes__ == [f"raised on rank {early} of 2, 5 virtual seconds after the start"]


def test_a_rank_that_sends_as_it_is_unwound_wakes_no_other():
    ended = {}

    def program(comm):
        last = comm.size - 1
        try:
            if comm.rank == last:
                comm.compute(1.0)
                raise ZeroDivisionError
            comm.recv(np.zeros(1), (comm.rank - 1) % last)
            ended["went on"] = comm.rank
        finally:
            if comm.rank != last:
                for _ in range(2):
                    comm.send(np.zeros(1), (comm.rank + 1) % last)
                    comm.compute(1.0)
            ended[comm.rank] = comm.clock() // 1
            if comm.rank != last:
                comm.recv(np.zeros(1), last)
                ended["received"] = comm.rank

    with pytest.raises(ZeroDivisionError) as caught:
        run(program, 4)
    assert ended == {3: 1, 0: 2, 1: 2, 2: 2}
    assert "rank 3 of 4, 1 virtual seconds" in caught.value.__notes__[0]


def test_a_rank_that_is_unwound_may_send_to_one_that_waits_for_a_message_in_flight():
    """Rank 3's message is due at rank 2 at 10 s, over the slow link."""
    ended = []

    def program(comm):
        x = np.zeros(1)
        if comm.rank == 0:
            comm.compute(1.0)
            comm.fence()
            raise ZeroDivisionError
        if comm.rank == 3:
            comm.send(x, 2)
            return
        try:
            comm.recv(x, 0 if comm.rank == 1 else ANY)
        finally:
            if comm.rank == 1:
                comm.send(x, 2)
            ended.append(comm.rank)

    with pytest.raises(ZeroDivisionError):
        run_virtual(program, 4, HERE.with_(devices_per_node=3, between=Link(10.0, 1e9)))
    assert ended == [1, 2]


def test_a_virtual_rank_that_exits_does_not_take_the_caller_along():
    def program(comm):
        if comm.rank == 1:
            raise SystemExit(3)
        comm.recv(np.empty(1))

    with pytest.raises(RankFailed, match=r"rank 1 of 3 called sys.exit\(3\)"):
        run(program, 3)


def test_a_run_inside_a_virtual_rank():
    inner = lambda comm: comm.rank  # noqa: E731
    assert run(lambda comm: run(inner, comm.rank + 1), 3) == [[0], [0, 1], [0, 1, 2]]


def test_context_variables_of_the_caller_hold_in_the_ranks():
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        run(lambda comm: np.ones(1) / 0, 2)


def test_a_barrier_is_named_where_it_waits():
    def program(comm):
        if comm.rank == 0:
            comm.barrier()

    with pytest.raises(DeadlockError, match="rank 0 waits to receive from rank 2 in barrier; rank 2 has ended"):
        run(program, 3)


OURS = np.arange(8.0)  # as in a notebook's cell


@pytest.mark.parametrize("collective", [all_reduce, reduce_scatter, reduce])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:4], lambda x: x.reshape(2, 4)], ids=["all", "part", "2d"])
def test_ranks_that_reduce_a_variable_of_their_process_are_told(collective, view):
    """By a ring over three, 4 is the sum of the sums of 1 and 1; on real ranks each has its own."""
    with pytest.raises(ArrayError, match=r"^ranks 0 and 1 gave the same array.*; each needs an array of its own"):
        run(lambda comm: collective(view(OURS), comm, algorithm="ring" if collective is not reduce else "linear"), 3)
    assert OURS.tolist() == list(range(8))


@pytest.mark.parametrize(
    "call",
    [
        lambda comm, ours: broadcast(ours, comm),
        lambda comm, ours: all_gather(np.full(2, comm.rank, float), comm, out=ours),
        lambda comm, ours: all_to_all(np.full(8, comm.rank, float).reshape(4, 2), comm, out=ours.reshape(4, 2)),
    ],
    ids=["broadcast", "all_gather", "all_to_all"],
)
def test_ranks_that_receive_into_a_variable_of_their_process_are_told(call):
    """What one rank receives is overwritten by what another does: after a broadcast nobody has root's numbers."""
    ours = np.arange(8.0)
    with pytest.raises(ArrayError, match=r"^ranks 0 and 1 gave the same array.*; each needs an array of its own"):
        run(lambda comm: call(comm, ours), 4)


def test_all_ranks_may_send_a_variable_of_their_process():
    def program(comm):
        return all_gather(OURS, comm).tolist(), all_to_all(OURS.reshape(2, 4), comm).tolist()

    assert run(program, 2) == [([*range(8)] * 2, [[0, 1, 2, 3]] * 2), ([*range(8)] * 2, [[4, 5, 6, 7]] * 2)]


def test_arrays_of_their_own_are_not_mistaken_for_one():
    """Also parts of one array, and memory that the others have left and freed when it is used again."""

    def program(comm):
        parts = comm.shared((comm.size, 64), np.float64)
        all_reduce(parts[comm.rank], comm)
        for _ in range(20):
            reduce(np.ones(64), comm, root=comm.size - 1)
        all_reduce(np.empty(0), comm)
        all_reduce(OURS[:0], comm)
        all_reduce(phantom((8,)), comm)

    run(program, 4)


def test_nothing_is_remembered_of_arrays_that_were_reduced():
    def program(comm):
        x = np.ones(8)
        gone = weakref.ref(x)
        all_reduce(x, comm)
        del x
        return gone() is None and not comm.group._owned

    assert run(program, 4) == [True] * 4
