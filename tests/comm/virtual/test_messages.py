"""Messages between virtual ranks: what arrives, in which order, and when."""

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.cluster import Cluster, Device, Link
from simdist.comm import ANY
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, ArrayError, DeadlockError, MessageMismatch

ALPHA, BETA = 1e-3, 1e-6
SIMPLE = Cluster("simple", Device("d", 1e9, 1e9, 1e9), Link(ALPHA, 1 / BETA), Link(10 * ALPHA, 0.1 / BETA))
LARGE = SIMPLE.eager_bytes + 8


def run(program, ranks, cluster=SIMPLE):
    results, spans, _ = run_virtual(program, ranks, cluster)
    return results, spans


@pytest.mark.parametrize("num_bytes", [0, 8, LARGE])
def test_one_message_takes_alpha_plus_n_beta(num_bytes):
    def program(comm):
        x = np.full(num_bytes, comm.rank, np.uint8)
        if comm.rank == 0:
            comm.send(x, 1, tag=7)
        else:
            status = comm.recv(x, 0)
            assert (status.src, status.tag, status.num_bytes) == (0, 7, num_bytes)
            assert not x.any()
        return comm.clock()

    (sent_s, arrived_s), spans = run(program, 2)
    assert sent_s == pytest.approx(num_bytes * BETA)
    assert arrived_s == pytest.approx(ALPHA + num_bytes * BETA)
    send, recv = sorted(spans, key=lambda s: s.rank)
    assert (send.name, send.peer, send.bytes, send.tag) == ("send", 1, num_bytes, 7)
    assert (recv.name, recv.peer, recv.bytes, recv.end_s) == ("recv", 0, num_bytes, arrived_s)


def all_at_once(comm, orders):
    """Each rank sends a message of LARGE bytes to each other, in its row's order, and waits for all; returns when."""
    x, requests = np.zeros(LARGE, np.uint8), []
    for src in np.random.default_rng(comm.rank).permutation([r for r in range(comm.size) if r != comm.rank]):
        requests.append(comm.irecv(np.empty(LARGE, np.uint8), int(src)))
    requests += [comm.isend(x, dst) for dst in orders[comm.rank]]
    ended = []
    for request in requests:
        request.wait()
        ended.append(comm.clock())
    return ended


@pytest.mark.parametrize("eager_bytes", [0, LARGE])
def test_of_messages_sent_at_once_each_port_carries_one_after_the_other(eager_bytes):
    """If the k-th messages of all ranks are for different ones, no port waits; if all are first for rank 0, it does."""
    cluster = SIMPLE.with_(eager_bytes=eager_bytes)
    others = [[(r + k) % 4 for k in (1, 2, 3)] for r in range(4)]
    assert run_virtual(all_at_once, 4, cluster, (others,))[2] == pytest.approx(ALPHA + 3 * LARGE * BETA)
    # Rank 3 receives 0's third message in the third period, 1's in the fourth and 2's in the fifth.
    crowded = [sorted(dsts) for dsts in others]
    assert run_virtual(all_at_once, 4, cluster, (crowded,))[2] == pytest.approx(ALPHA + 5 * LARGE * BETA)


@given(orders=st.tuples(*[st.permutations([r for r in range(5) if r != rank]) for rank in range(5)]))
@settings(max_examples=30)
def test_large_messages_sent_at_once_leave_in_the_order_of_the_sends_as_small_ones_do(orders):
    """In whatever order the ranks post the receives."""
    announced, copied = (run_virtual(all_at_once, 5, SIMPLE.with_(eager_bytes=e), (orders,))[0] for e in (0, LARGE))
    assert announced == copied


def test_a_large_message_leaves_when_all_else_at_its_instant_is_done():
    """Both are ready for it at 0 s; there rank 0 is due once more, and goes on to 1 s without a wait."""

    def program(comm):
        x, *y = np.zeros(LARGE, np.uint8), np.zeros(8, np.uint8), np.zeros(8, np.uint8)
        if comm.rank == 0:
            requests = [comm.isend(x, 1)]
            comm.exchange("")
            requests.append(comm.isend(y[0], 1, tag=1))
            comm.compute(seconds=1.0)
            requests.append(comm.isend(y[1], 1, tag=2))
        else:
            requests = [comm.irecv(y[0], 0, tag=1), comm.irecv(x, 0, tag=0), comm.irecv(y[1], 0, tag=2)]
            comm.exchange("")
        return [request.wait() and comm.clock() for request in requests]

    here_s = run(program, 2)[0][1]
    assert here_s == pytest.approx([ALPHA + 8 * BETA, ALPHA + (8 + LARGE) * BETA, 1.0 + ALPHA + 8 * BETA])


def test_a_slower_link_between_nodes():
    def program(comm):
        x = np.zeros(1000, np.uint8)
        comm.send(x, 2) if comm.rank == 0 else comm.rank == 2 and comm.recv(x, 0)
        return comm.node, comm.num_nodes, comm.clock()

    results, _ = run(program, 3, SIMPLE.with_(devices_per_node=2))
    assert [r[:2] for r in results] == [(0, 2), (0, 2), (1, 2)]
    assert results[2][2] == pytest.approx(10 * ALPHA + 1000 * 10 * BETA)


def test_a_nic_shared_by_a_node_serialises_its_messages_and_two_nics_do_not():
    def program(comm):
        x = np.zeros(1000, np.uint8)
        if comm.rank < 2:
            comm.send(x, comm.rank + 2)
        else:
            comm.recv(x, comm.rank - 2)
        return comm.clock()

    shared, _ = run(program, 4, SIMPLE.with_(devices_per_node=2, nics_per_node=1))
    own, _ = run(program, 4, SIMPLE.with_(devices_per_node=2, nics_per_node=2))
    one = 10 * ALPHA + 1000 * 10 * BETA
    assert own[2:] == pytest.approx([one, one])
    assert shared[2:] == pytest.approx([one, one + 1000 * 10 * BETA])


def test_a_receivers_port_takes_one_message_at_a_time():
    def program(comm):
        x = np.zeros(1000, np.uint8)
        if comm.rank:
            comm.send(x, 0)
        else:
            return [comm.recv(x, src) and comm.clock() for src in (1, 2, 3)]

    results, _ = run(program, 4)
    assert results[0] == pytest.approx([ALPHA + k * 1000 * BETA for k in (1, 2, 3)])


def test_messages_of_a_pair_do_not_overtake_and_tags_choose_among_them():
    def program(comm):
        if comm.rank == 0:
            for i, tag in enumerate([5, 6, 5, 6]):
                comm.send(np.array([i]), 1, tag)
        else:
            got, x = [], np.zeros(1, int)
            for tag in (6, 5, ANY, ANY):
                comm.recv(x, 0, tag)
                got.append(int(x[0]))
            return got

    assert run(program, 2)[0][1] == [1, 0, 2, 3]


@pytest.mark.parametrize("size", [1, LARGE // 8 + 1])
def test_any_source_takes_the_first_to_arrive(size):
    # Rank 3 starts first though rank 1 is further in the list; rank 1's message is sent last.
    def program(comm):
        x = np.full(size, comm.rank)
        if comm.rank == 0:
            return [comm.recv(x).src for _ in range(3)]
        comm.compute(seconds=10.0 / comm.rank)
        comm.send(x, 0)

    assert run(program, 4)[0][0] == [3, 2, 1]


def test_any_source_waits_for_a_message_that_overtakes_one_in_flight():
    # Rank 1's message is under way over the slow link when rank 2 sends a later one over the fast link.
    def program(comm):
        x = np.zeros(1)
        if comm.rank == 0:
            return [comm.recv(x).src for _ in range(2)]
        if comm.rank == 2:
            comm.send(x, 0)
        else:
            comm.compute(seconds=ALPHA)
            comm.send(x, 0)

    assert run(program, 3, SIMPLE.with_(devices_per_node=2))[0][0] == [1, 2]


def test_a_receive_from_any_source_that_was_posted_long_ago_waits_for_its_turn():
    """Rank 2's message comes at 10 s, over the slow link, and rank 1's at 3 s; rank 0 asks at 20 s."""
    far = SIMPLE.with_(devices_per_node=2, between=Link(10.0, 1e9))

    def program(comm):
        x = np.zeros(0)
        if comm.rank == 0:
            comm.compute(seconds=1.0)
            requests = [comm.irecv(x) for _ in range(2)]
            comm.compute(seconds=19.0)
            return [request.wait().src for request in requests]
        if comm.rank == 1:
            comm.compute(seconds=3.0 - ALPHA)
        comm.send(x, 0)

    assert run(program, 3, far)[0][0] == [1, 2]


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # of the other message
def test_who_went_on_with_what_overtook_is_not_woken_by_the_other():
    """The slow one comes at 1 s, the quick one at 0.5 s; what rank 0 waits for then at 2 s."""
    far = SIMPLE.with_(devices_per_node=3, between=Link(1.0, 1e9))

    def program(comm):
        x = np.zeros(0)
        if comm.rank == 0:
            order = [comm.recv(x).src]
            order.append(comm.recv(x, 2, tag=9).src)
            return order, comm.clock()
        if comm.rank == 2:
            comm.compute(seconds=0.5)
            comm.send(x, 0)
            comm.compute(seconds=1.5)
            comm.send(x, 0, tag=9)
        if comm.rank == 3:
            comm.send(x, 0)

    (order, clock_s), *_ = run(program, 4, far)[0]
    assert order == [2, 2]
    assert clock_s == pytest.approx(2.0 + ALPHA)


def test_who_waits_for_any_source_is_not_woken_by_another_tag():
    """Rank 3's message comes at 10 s, and rank 2's at 5 s; rank 1's, with another tag, at 3 s."""
    far = SIMPLE.with_(devices_per_node=3, between=Link(10.0, 1e9))

    def program(comm):
        x = np.zeros(0)
        if comm.rank == 0:
            return [comm.recv(x, tag=tag).src for tag in (1, 1, 2)]
        comm.compute(seconds=(0.0, 3.0, 5.0, 0.0)[comm.rank])
        comm.send(x, 0, tag=2 if comm.rank == 1 else 1)

    assert run(program, 4, far)[0][0] == [2, 3, 1]


def test_of_messages_that_arrive_at_once_any_source_takes_the_one_from_the_lowest_rank():
    def program(comm):
        nothing = np.zeros(0)
        if comm.rank == 0:
            return [comm.recv(nothing).src for _ in range(3)]
        comm.send(nothing, 0)

    assert run(program, 4)[0][0] == [1, 2, 3]


def test_any_source_and_known_sources_share_what_comes():
    def program(comm):
        x = np.zeros(1, int)
        if comm.rank:
            for i in range(3):
                comm.send(np.array([10 * comm.rank + i]), 0, tag=i)
            return None
        got = []
        for src, tag in [(2, 1), (ANY, 0), (1, ANY), (ANY, ANY), (ANY, 2), (ANY, ANY)]:
            status = comm.recv(x, src, tag)
            got.append((status.src, status.tag, int(x[0])))
        return got

    got = run(program, 3)[0][0]
    assert got[:3] == [(2, 1, 21), (1, 0, 10), (1, 1, 11)]
    assert sorted(value for _, _, value in got) == [10, 11, 12, 20, 21, 22]


@pytest.mark.parametrize("shape", [(6,), (3, 2), (1, 6), (8,)])
def test_sendrecv_fills_arrays_of_another_shape_in_the_order_of_items(shape):
    def program(comm):
        x, y = np.arange(6.0).reshape(2, 3) + 10 * comm.rank, np.full(shape, -1.0)
        comm.sendrecv(x, 1 - comm.rank, y, 1 - comm.rank)
        return y.ravel()[:6].tolist()

    assert run(program, 2)[0] == [list(range(10, 16)), list(range(6))]


@pytest.mark.parametrize("y", [np.zeros(1), np.zeros(2, np.float32)])
def test_sendrecv_of_what_does_not_fit(y):
    with pytest.raises(MessageMismatch, match="2 x float64 from rank"):
        run(lambda comm: comm.sendrecv(np.zeros(2), 1 - comm.rank, y.copy(), 1 - comm.rank), 2)


@pytest.mark.parametrize("peers", [(-1, 0), (0, -1), (-1, -1), (2, 0), (0, 2)])
@pytest.mark.parametrize("size", [1, LARGE])
def test_sendrecv_with_no_such_peer(peers, size):
    dst, src = peers
    with pytest.raises(ArgumentError, match="ranks 0 to 1"):
        run(lambda comm: comm.sendrecv(np.zeros(size), dst, np.zeros(size), src), 2)


def test_a_large_send_waits_for_its_receive_and_a_small_one_does_not():
    def program(comm, num_bytes):
        x = np.zeros(num_bytes, np.uint8)
        if comm.rank == 0:
            comm.send(x, 1)
        else:
            comm.compute(seconds=1.0)
            comm.recv(x, 0)
        return comm.clock()

    small = run_virtual(program, 2, SIMPLE, (8,))[0]
    large = run_virtual(program, 2, SIMPLE, (LARGE,))[0]
    assert small == pytest.approx([8 * BETA, 1.0])
    assert large == pytest.approx([1.0 + LARGE * BETA, 1.0 + ALPHA + LARGE * BETA])


@pytest.mark.parametrize("posted_s", [0.0, 1.0, 1.0 + ALPHA / 2, 2.0])
def test_a_receive_from_any_source_waits_for_the_announcement_of_a_large_message(posted_s):
    """Rank 0 announces it at 1 s; rank 1 would see it one latency later, and only then it leaves."""

    def program(comm):
        x = np.zeros(LARGE, np.uint8)
        if comm.rank == 0:
            comm.compute(seconds=1.0)
            comm.send(x, 1, tag=5)
            return None
        comm.compute(seconds=posted_s)
        seen = comm.probe(5, until_s=9.0), comm.clock()
        comm.recv(x)
        return *seen, comm.clock()

    seen, seen_s, there_s = run(program, 2)[0][1]
    assert seen
    assert seen_s == pytest.approx(max(1.0 + ALPHA, posted_s))
    assert there_s == pytest.approx(seen_s + ALPHA + LARGE * BETA)


def test_what_was_sent_is_what_was_there_when_it_was_sent():
    def program(comm):
        x = np.full(4, comm.rank)
        if comm.rank == 0:
            comm.send(x, 1)
            x[:] = 99
        else:
            comm.compute(seconds=1.0)
            comm.recv(x, 0)
            return x.tolist()

    assert run(program, 2)[0][1] == [0, 0, 0, 0]


@pytest.mark.parametrize("size", [3, LARGE])
def test_nonblocking_exchange_both_ways_at_once(size):
    def program(comm):
        x, y = np.full(size, comm.rank, np.uint8), np.zeros(size, np.uint8)
        other = 1 - comm.rank
        requests = [comm.irecv(y, other, 4), comm.isend(x, other, 4)]
        statuses = [r.wait() for r in requests]
        assert statuses[0] == requests[0].wait() == (other, 4, size)
        return set(y.tolist()), comm.clock()

    results, _ = run(program, 2)
    assert [r[0] for r in results] == [{1}, {0}]
    assert results[0][1] == results[1][1] == pytest.approx(ALPHA + size * BETA)


def test_receives_posted_ahead_get_messages_in_the_order_of_posting():
    def program(comm):
        if comm.rank == 0:
            for i in range(3):
                comm.send(np.array([i]), 1)
        else:
            arrays = np.zeros((3, 1), int)
            requests = [comm.irecv(a, 0) for a in arrays]
            for r in reversed(requests):
                r.wait()
            return arrays[:, 0].tolist()

    assert run(program, 2)[0][1] == [0, 1, 2]


def test_sendrecv_of_large_messages_round_a_ring():
    def program(comm):
        x, y = np.full(LARGE, comm.rank, np.uint8), np.zeros(LARGE, np.uint8)
        comm.sendrecv(x, (comm.rank + 1) % comm.size, y, (comm.rank - 1) % comm.size)
        return int(y[-1]), comm.clock()

    results, _ = run(program, 5)
    assert [r[0] for r in results] == [4, 0, 1, 2, 3]
    assert {r[1] for r in results} == {ALPHA + LARGE * BETA}


def test_a_message_to_oneself():
    def program(comm):
        y = np.zeros(3)
        comm.sendrecv(np.arange(3.0), 0, y, 0)
        return y.tolist()

    assert run(program, 1)[0][0] == [0, 1, 2]


def test_a_longer_buffer_is_filled_from_its_start():
    def program(comm):
        if comm.rank == 0:
            comm.send(np.arange(3), 1)
        else:
            x = np.full((2, 3), -1)
            assert comm.recv(x).num_bytes == 24
            return x.ravel().tolist()

    assert run(program, 2)[0][1] == [0, 1, 2, -1, -1, -1]


@pytest.mark.parametrize("posted_first", [True, False])
@pytest.mark.parametrize("buffer", [np.zeros(2), np.zeros(9, np.float32)])
def test_a_message_that_does_not_fit_is_told_to_its_receiver(posted_first, buffer):
    def program(comm):
        if comm.rank == 0:
            comm.compute(seconds=1.0 if posted_first else 0.0)
            comm.send(np.zeros(3), 1)
        else:
            comm.compute(seconds=0.0 if posted_first else 1.0)
            comm.recv(buffer, 0)

    with pytest.raises(MessageMismatch, match="3 x float64 from rank 0 to rank 1 ") as caught:
        run(program, 2)
    assert any("rank 1 of 2" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("src", [0, ANY])
@pytest.mark.parametrize("eager_bytes", [0, LARGE])
def test_that_a_message_does_not_fit_is_known_when_it_has_come(eager_bytes, src):
    def program(comm):
        if comm.rank == 0:
            comm.compute(seconds=1.0)
            comm.send(np.zeros(3), 1)
        else:
            with pytest.raises(MessageMismatch, match="3 x float64 .*does not fit a receive of 2 x float64"):
                comm.recv(np.zeros(2), src)
        return comm.clock()

    announced_s = ALPHA if src == ANY and eager_bytes == 0 else 0.0
    sent_s, known_s = run(program, 2, SIMPLE.with_(eager_bytes=eager_bytes))[0]
    assert sent_s == pytest.approx(1.0 + announced_s + 24 * BETA)
    assert known_s == pytest.approx(sent_s + ALPHA)


def test_no_such_peer():
    for call in ("send", "recv"):
        with pytest.raises(ArgumentError, match="ranks 0 to 1"):
            run(lambda comm, call=call: getattr(comm, call)(np.zeros(1), 2), 2)


@pytest.mark.parametrize("peer", ["1", 1.0, None, True, [1], np.array(1), np.array([0, 1])], ids=repr)
def test_a_peer_that_is_no_whole_number(spmd, peer):
    def program(comm):
        x, y, other = np.zeros(1), np.zeros(1), 1 - comm.rank
        comm.sendrecv(x, other, y, other)  # the next exchange begins by looking whether it is with the same rank
        calls = [partial(getattr(comm, call), x, peer) for call in ("send", "recv", "isend", "irecv")]
        calls += [partial(comm.sendrecv, x, peer, y, other), partial(comm.sendrecv, x, other, y, peer)]
        for call in calls:
            with pytest.raises(ArgumentError, match=rf"{re.escape(repr(peer))} on rank .: a rank is a whole number"):
                call()

    spmd(program, 2)


@pytest.mark.parametrize("several", [[1], np.array([1]), np.array([1, 1]), 10**400], ids=repr)
def test_tags_and_times_that_are_no_one_number(spmd, several):
    def program(comm):
        x, work = np.zeros(1), r"cannot compute for .*: needs 0 or more, and finite"
        for match, call in [
            ("send with tag", partial(comm.send, x, 0, several)),
            ("recv with tag", partial(comm.recv, x, 0, several)),
            ("recv with tag", partial(comm.irecv, x, 0, several)),
            ("probe with tag", partial(comm.probe, several)),
            ("needs a time", partial(comm.probe, 0, several)),
            (work, partial(comm.compute, several)),
            (work, partial(comm.compute, flops=several)),
            (work, partial(comm.spend, several)),
        ]:
            with pytest.raises(ArgumentError, match=match):
                call()

    spmd(program, 1)


def test_truth_is_no_tag(spmd):
    def program(comm):
        x = np.zeros(1)
        for call in (comm.send, comm.recv, comm.isend, comm.irecv):
            with pytest.raises(ArgumentError, match="with tag True on rank 0: needs a whole number"):
                call(x, 0, tag=True)

    spmd(program, 1)


@pytest.mark.parametrize(("x", "words"), [(3.5, r"float 3\.5"), (np.float64(3.5), r"float64 np\.float64\(3\.5\)")])
def test_a_message_of_what_is_no_array(x, words):
    for call in ("send", "recv"):
        with pytest.raises(ArrayError, match=f"{call} of {words} on rank 0: needs an array"):
            run(lambda comm, call=call: getattr(comm, call)(x, 1), 2)


def test_a_message_nobody_sends_on_this_communicator():
    def program(comm):
        half = comm.split(0)
        if comm.rank == 0:
            comm.send(np.zeros(1), 1)
        else:
            half.recv(np.zeros(1), 0)

    with pytest.raises(DeadlockError, match="rank 1 waits to receive from rank 0; rank 0 has ended"):
        run(program, 2)


def test_jitter_is_seeded_and_stretches_latency_alone():
    def program(comm):
        x = np.zeros(0)
        comm.send(x, 1) if comm.rank == 0 else comm.recv(x, 0)
        return comm.clock()

    def arrival(**changes):
        return run(program, 2, SIMPLE.with_(**changes))[0][1]

    assert arrival(jitter=0.5, seed=1) == arrival(jitter=0.5, seed=1) != arrival(jitter=0.5, seed=2)
    assert ALPHA <= arrival(jitter=0.5, seed=1) <= 1.5 * ALPHA


def test_a_slow_rank_computes_longer():
    cluster = SIMPLE.with_(slow={1: 4.0})
    results, _ = run(
        lambda comm: (comm.compute(seconds=1.0), comm.compute(flops=2e9, bytes=1e9), comm.clock())[-1], 2, cluster
    )
    assert results == pytest.approx([3.0, 12.0])
