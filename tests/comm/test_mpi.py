"""What every communicator promises, in both worlds: under plain pytest on virtual ranks, under mpirun on real ones."""

import re
import time
import tracemalloc

import numpy as np
import pytest
from device import stands_in
from jobs import needs_mpi

import simdist as sd
from simdist.arrays.kind import address
from simdist.collectives import all_reduce
from simdist.comm import ANY, Status
from simdist.comm.mpi_errors import explain
from simdist.comm.solo import SoloCommunicator
from simdist.errors import ArgumentError, ArrayError, CollectiveMismatch, MessageMismatch, PeerLost, RankFailed

DTYPES = [np.float16, np.float32, np.float64, np.int32, np.int64, np.bool_, np.complex128, np.uint8]
RANKS = 3
LARGE = 200_000  # items: far beyond what any world keeps until it is asked for


def raised(function, *args, **kwargs):
    """What calling it raises: kind and text."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def named(group, comm):
    """What a group is called beyond the name of the communicator that it was made from."""
    assert group.context.startswith(comm.context)
    return group.context.removeprefix(comm.context)


# -- messages -------------------------------------------------------------------------------------------


def test_every_dtype_and_shape_arrives_as_it_was_sent(spmd):
    def program(comm):
        same = []
        for dtype in DTYPES:
            for shape in [(), (0,), (5,), (2, 3), (3, 0, 2)]:
                x = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) + comm.rank).astype(dtype)
                y = np.zeros(shape, dtype)
                comm.sendrecv(x, (comm.rank + 1) % comm.size, y, (comm.rank - 1) % comm.size)
                left = np.asarray(np.arange(y.size).reshape(shape) + (comm.rank - 1) % comm.size).astype(dtype)
                same.append(np.array_equal(y, left))
        return all(same)

    assert spmd(program, RANKS) == [True] * RANKS


def test_a_receive_tells_what_came(spmd):
    def program(comm):
        if comm.rank == 0:
            comm.send(np.arange(3.0), 1, tag=7)
            return None
        if comm.rank > 1:
            return None
        y = np.full(5, -1.0)
        status = comm.recv(y, src=ANY, tag=ANY)
        return tuple(status), y

    told, y = spmd(program, 2)[1]
    assert Status(*told) == Status(src=0, tag=7, num_bytes=24)
    assert y.tolist() == [0, 1, 2, -1, -1]


@pytest.mark.parametrize("p", [1, 2])
def test_a_request_is_over_when_its_wait_has_returned(spmd, p):
    def program(comm):
        sent = comm.isend(np.ones(3), (comm.rank + 1) % p)
        received = comm.irecv(np.ones(3), (comm.rank - 1) % p)
        for request in (received, sent):
            request.wait()
        return received.over, sent.over

    assert spmd(program, p) == [(True, True)] * p


def test_messages_of_one_tag_keep_their_order_and_tags_choose(spmd):
    def program(comm):
        if comm.rank == 0:
            for i in range(6):
                comm.send(np.array([i]), 1, tag=i % 2)
            return None
        y, got = np.zeros(1, int), []
        for tag in (1, 1, 0, 1, 0, 0):
            comm.recv(y, 0, tag)
            got.append(int(y[0]))
        return got

    assert spmd(program, 2)[1] == [1, 3, 0, 5, 2, 4]


def test_from_any_source_every_message_comes_once(spmd):
    def program(comm):
        if comm.rank:
            comm.send(np.array([10 + comm.rank]), 0, tag=comm.rank)
            return None
        y, got = np.zeros(1, int), []
        for _ in range(comm.size - 1):
            status = comm.recv(y)
            got.append((status.src, status.tag, int(y[0])))
        return sorted(got)

    assert spmd(program, RANKS)[0] == [(r, r, 10 + r) for r in range(1, RANKS)]


@pytest.mark.parametrize("items", [1, LARGE])
def test_what_is_asked_for_at_once_may_cross(spmd, items):
    def program(comm):
        x = np.full(items, comm.rank)
        incoming = {r: np.empty_like(x) for r in range(comm.size) if r != comm.rank}
        requests = [comm.isend(x, r, tag=3) for r in incoming]
        requests += [comm.irecv(y, r, tag=3) for r, y in incoming.items()]
        told = [tuple(request.wait()) for request in requests]
        again = [tuple(request.wait()) for request in requests]
        return told == again, all((y == r).all() for r, y in incoming.items()), told

    for rank, (same, right, told) in enumerate(spmd(program, RANKS)):
        others = [r for r in range(RANKS) if r != rank]
        assert (same, right) == (True, True)
        assert told == [(r, 3, 8 * items) for r in others] * 2


def test_a_stream_needs_a_function_to_call(spmd):
    def program(comm):
        side = comm.stream("aside")
        return raised(side.start, side.comm.barrier()), side.start(max, 1, 2).wait()

    ((kind, text), most), _ = spmd(program, 2)
    assert (kind, most) == ("ArgumentError", 2)
    assert text.startswith("start on stream 'aside' of None; needs a function and its arguments")


def test_a_stream_works_with_its_own_communicator(spmd):
    def program(comm):
        side, x = comm.stream("aside"), np.ones(4)
        half = side.comm.split(comm.rank % 2)
        side.start(all_reduce, x, half).wait()
        hidden = raised(side.start(lambda: all_reduce(x, comm)).wait)
        return raised(side.start, all_reduce, x, comm), raised(side.start, all_reduce, x=x, comm=comm), hidden, x

    for rank, (first, second, hidden, x) in enumerate(spmd(program, RANKS)):
        assert first == second and first[0] == hidden[0] == "ArgumentError"
        refused = "with a communicator of stream 'main'; needs the stream's own, as in"
        assert first[1].startswith(f"start on stream 'aside' {refused}")
        assert re.match(f"all_reduce by .* on stream 'aside' of rank {rank} {refused}", hidden[1])
        assert (x == [2, 1, 2][rank]).all()


def test_the_main_stream_may_use_the_communicators_of_others_and_is_called_main(spmd):
    def program(comm):
        side, x = comm.stream("aside"), np.ones(2)
        side.start(all_reduce, x, side.comm).wait()
        all_reduce(x, side.comm)  # the stream has nothing to do now
        side.comm.stream("inner").start(time.sleep, 0.01).wait()
        return x, sorted({stream for _, stream, *_ in comm.recorder.rows})

    for x, streams in spmd(program, 2):
        assert x.tolist() == [4, 4] and set(streams) <= {"main", "aside", "inner"}


def test_large_messages_cross_in_sendrecv(spmd):
    def program(comm):
        x, y = np.full(LARGE, comm.rank), np.empty(LARGE, int)
        comm.sendrecv(x, (comm.rank + 1) % comm.size, y, (comm.rank - 1) % comm.size)
        return bool((y == (comm.rank - 1) % comm.size).all())

    assert all(spmd(program, RANKS))


@pytest.mark.parametrize("size", [2, LARGE])
def test_one_array_cannot_be_sent_and_received_into(spmd, size):
    def program(comm):
        x = np.zeros(size)
        comm.sendrecv(x[:0], comm.rank, x[:0], comm.rank)
        return raised(comm.sendrecv, x, (comm.rank + 1) % comm.size, x, (comm.rank - 1) % comm.size)

    results = spmd(program, RANKS)
    assert results == [("ArrayError", f"sendrecv on rank {r}: x and y are the same array; needs two") for r in range(3)]


@pytest.mark.parametrize("size", [2, LARGE])
def test_arrays_that_overlap_cannot_be_sent_and_received_into(spmd, size):
    """Of long ones, what was received first was sent on, without an error; of short ones, on real ranks only."""

    def program(comm):
        x, peers = np.zeros(2 * size), ((comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
        comm.sendrecv(x[:size], peers[0], x[size:], peers[1])
        return raised(comm.sendrecv, x[:size], peers[0], x[1 : size + 1], peers[1])

    words = "sendrecv on rank {}: x and y overlap in memory; needs two arrays that do not"
    assert spmd(program, RANKS) == [("ArrayError", words.format(r)) for r in range(RANKS)]


@pytest.mark.parametrize("size", [2, LARGE])
def test_a_rank_may_send_to_itself(spmd, size):
    def program(comm):
        x, y = np.linspace(1.0, comm.rank, size), np.zeros(size)
        for tag in (1, 2):
            comm.send(x, comm.rank, tag)
        x[:] = -1
        for tag in (2, 1):
            comm.recv(y, comm.rank, tag)
        comm.sendrecv(y.copy(), comm.rank, y, comm.rank)
        return y[[0, -1]]

    assert [y.tolist() for y in spmd(program, 2)] == [[1, 0], [1, 1]]


def test_what_a_rank_has_sent_to_itself_and_received_takes_no_room(spmd):
    def program(comm):
        x = np.zeros(1 << 17)
        tracemalloc.start()
        for _ in range(30):
            comm.send(x, comm.rank)
            comm.recv(x, comm.rank)
        room_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return room_bytes < 3 * x.nbytes

    assert spmd(program, 1) == [True]


def test_a_message_that_does_not_fit_is_refused(spmd):
    def program(comm):
        if comm.rank == 0:
            for _ in range(3):
                comm.isend(np.zeros(100), 1).wait()
            return []
        return [
            raised(comm.recv, np.zeros(10), 0),
            raised(comm.recv, np.zeros(10)),
            raised(lambda: comm.irecv(np.zeros(10), 0).wait()),
        ]

    for kind, text in spmd(program, 2)[1]:
        assert kind == MessageMismatch.__name__
        assert "rank 0" in text or "any rank" in text


def test_ranks_that_are_not_there_are_refused(spmd):
    def program(comm):
        x = np.zeros(1)
        return [
            raised(comm.send, x, comm.size),
            raised(comm.send, x, ANY),
            raised(comm.recv, x, comm.size),
            raised(comm.recv, x, -2),
            raised(comm.sendrecv, x, 0, x.copy(), -1),
            raised(comm.isend, x, 99),
            raised(comm.irecv, x, 99),
        ]

    for kinds in spmd(program, 2):
        assert [kind for kind, _ in kinds] == [ArgumentError.__name__] * 7
        assert "ranks 0 to 1" in kinds[0][1]


def test_what_is_not_contiguous_is_refused_in_both_worlds(spmd):
    def program(comm):
        row, column = np.zeros(4), np.zeros((4, 4))[:, 1]
        return [
            raised(comm.send, column, 0),
            raised(comm.recv, column, 0),
            raised(comm.isend, column, 0),
            raised(comm.irecv, column, 0),
            raised(comm.sendrecv, column, 0, row, 0),
            raised(comm.sendrecv, row, 0, column, 0),
        ]

    for told in spmd(program, 2):
        assert [kind for kind, _ in told] == [ArrayError.__name__] * 6
        assert all("strides (32,)" in text and "as its copy() is" in text for _, text in told)


@pytest.mark.mpi
def test_arrays_that_cannot_travel_are_refused(spmd):
    def program(comm):
        table, fixed = np.zeros((4, 4)), np.zeros(4)
        fixed.flags.writeable = False
        calls = [
            (comm.send, table[:, 1], 0),
            (comm.send, table.T, 0),
            (comm.isend, np.array([None]), 0),
            (comm.recv, fixed, 0),
            (comm.irecv, fixed, 0),
            (comm.sendrecv, table[0], 0, fixed, 0),
            (comm.recv, [1, 2], 0),
        ]
        return [raised(*call) for call in calls]

    for told in spmd(program, 2):
        assert [kind for kind, _ in told] == [ArrayError.__name__] * 7
        for (_, text), word in zip(
            told, ["strides", "strides", "objects", "read-only", "read-only", "read-only", "list"], strict=True
        ):
            assert word in text


@pytest.mark.mpi
def test_tags_that_mpi_does_not_take_are_refused(spmd):
    def program(comm):
        x = np.zeros(1)
        return [raised(comm.send, x, 0, -5), raised(comm.recv, x, 0, -5), raised(comm.isend, x, 0, 1 << 40)]

    for told in spmd(program, 2):
        assert [kind for kind, _ in told] == [ArgumentError.__name__] * 3


FEW, MANY = np.zeros(1), np.broadcast_to(np.uint8(0), 1 << 31)


@pytest.mark.parametrize(
    ("kind", "x", "peer", "error", "words"),
    [
        ("length", MANY, 3, MessageMismatch, "call: the message from rank 3 is longer than the 2147483648 bytes"),
        ("length", FEW, ANY, MessageMismatch, "call: the message from any rank is longer than the 8 bytes"),
        ("tag", FEW, 3, ArgumentError, "call: MPI does not accept the tag 9"),
        ("lost", FEW, 3, PeerLost, "call, with rank 3, which has died"),
        ("lost", MANY, ANY, PeerLost, "call, with any rank, of which one has died"),
        ("other", MANY, 3, ArrayError, "call: 2147483648 bytes at once; this MPI accepts at most 2147483647"),
        ("other", MANY[1:], 3, RankFailed, "call, with rank 3: MPI says: it broke"),
        ("other", None, ANY, RankFailed, "call, with any rank: MPI says: it broke"),
        ("", MANY, 3, ArrayError, "call: the array to receive into is read-only"),
        ("", FEW, 3, ValueError, "it broke"),
    ],
)
def test_errors_of_mpis_are_told_in_our_words(kind, x, peer, error, words):
    told = explain(ValueError("it broke"), kind, "call", x, peer, 9)
    assert type(told) is error
    assert words in str(told)


# -- groups ---------------------------------------------------------------------------------------------


def test_split_orders_by_key_and_leaves_out_who_has_no_color(spmd):
    def program(comm):
        halves = comm.split(-5 if comm.rank % 2 else 7, key=-comm.rank)
        some = comm.split(None if comm.rank == 0 else 3)
        y = np.zeros(1, int)
        halves.sendrecv(np.array([comm.rank]), (halves.rank + 1) % halves.size, y, (halves.rank - 1) % halves.size)
        described = None if some is None else (some.rank, list(some.ranks), named(some, comm))
        return halves.rank, list(halves.ranks), named(halves, comm), int(y[0]), described

    assert spmd(program, 4) == [
        (1, [2, 0], "/1:7", 2, None),
        (1, [3, 1], "/1:-5", 3, (0, [1, 2, 3], "/2:3")),
        (0, [2, 0], "/1:7", 0, (1, [1, 2, 3], "/2:3")),
        (0, [3, 1], "/1:-5", 1, (2, [1, 2, 3], "/2:3")),
    ]


def test_a_key_may_have_64_bits(spmd):
    assert spmd(lambda comm: list(comm.split(0, (1 << 62) - comm.rank).ranks), RANKS) == [[2, 1, 0]] * RANKS


def test_groups_of_groups_are_named_alike_on_all_ranks_and_know_who_they_are(spmd):
    def program(comm):
        comm.split(None if comm.rank == 0 else 1)
        group = comm.split(comm.rank // 2, -comm.rank)
        within = group.split(0, -group.rank)
        return named(within, comm), list(within.ranks), within.rank

    assert spmd(program, 4) == [
        *[("/2:0/1:0", [0, 1], 0), ("/2:0/1:0", [0, 1], 1)],
        *[("/2:1/1:0", [2, 3], 0), ("/2:1/1:0", [2, 3], 1)],
    ]


def test_a_color_may_be_a_bool(spmd):
    assert spmd(lambda comm: named(comm.split(comm.rank == 0 or 1), comm), 2) == ["/1:1"] * 2


def test_groups_and_shadows_do_not_hear_each_other(spmd):
    def program(comm):
        group, shadow, y = comm.split(0), comm.shadow, np.zeros(1, int)
        if comm.rank == 0:
            comm.send(np.array([1]), 1)
            shadow.send(np.array([2]), 1)
            group.send(np.array([3]), 1)
            return named(shadow, comm), named(group.shadow, comm)
        got = []
        if comm.rank == 1:
            for c in (group, shadow, comm):
                c.recv(y)
                got.append(int(y[0]))
        return got, named(group.shadow, comm)

    results = spmd(program, 2)
    assert results[0] == (".collective", "/1:0.collective")
    assert results[1][0] == [3, 2, 1]


def test_a_stream_works_in_order_beside_the_main_one(spmd):
    def program(comm):
        side = comm.stream("communication")
        order, y, z = [], np.zeros(1, int), np.zeros(1, int)
        after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

        def work(i):
            side.comm.sendrecv(np.array([100 + i]), after, y, before)
            order.append(int(y[0]))
            return i

        works = [side.start(work, i) for i in range(4)]
        for i in range(4):
            comm.sendrecv(np.array([i]), after, z, before)
        results = [w.wait() for w in works] + [works[0].wait()]
        with pytest.raises(ZeroDivisionError):
            side.start(divmod, 1, 0).wait()
        return order, results, named(side.comm, comm), side.comm.stream_name

    for order, results, context, name in spmd(program, RANKS):
        assert order == [100, 101, 102, 103]
        assert results == [0, 1, 2, 3, 0]
        assert (context, name) == (".communication", "communication")


def test_what_failed_first_and_was_not_waited_for_is_raised_first(spmd):
    def program(comm):
        side = comm.stream("side")
        first, second = side.start(int, "cause"), side.start(int, "consequence")
        told = []
        for work in (second, second, second, first):
            with pytest.raises(ValueError, match="invalid") as error:
                work.wait()
            told.append(str(error.value).split("'")[1])
        return told

    assert spmd(program, 2) == [["cause", "consequence", "consequence", "cause"]] * 2


def test_streams_of_one_name_are_told_apart(spmd):
    def program(comm):
        return [named(comm.stream("side").comm, comm) for _ in range(3)]

    assert spmd(program, 2) == [[".side", ".side 2", ".side 3"]] * 2


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_ranks_that_disagree_hear_of_it_together(spmd):
    def program(comm):
        def call():
            comm.agree(f"broadcast from {0 if comm.rank else 2}")
            comm.barrier()

        return raised(call)

    results = spmd(program, RANKS)
    assert len(set(results)) == 1
    kind, text = results[0]
    assert kind == CollectiveMismatch.__name__
    assert all(words in text for words in ("broadcast from 2", "broadcast from 0", "'world"))


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")
def test_of_what_is_long_the_beginning_is_told(spmd):
    def program(comm):
        def call():
            comm.agree(f"{comm.rank} is {'ö' * 5000}")
            comm.barrier()

        return raised(call)

    (kind, text), same = spmd(program, 2)
    assert same == (kind, text)
    assert kind == CollectiveMismatch.__name__
    assert all(f"rank {r}: {r} is ö" in text for r in range(2))
    assert text.replace("\n", "").isprintable(), "with no half of a letter at its end"


def test_ranks_agree_or_are_not_asked(spmd):
    def program(comm):
        for call in ("broadcast from 0", "", "x" * 5000, "caf\udce9"):  # a file's name may be no text
            comm.agree(call)
        comm.barrier()
        comm.check = False
        comm.agree(f"anything {comm.rank}")
        comm.check = True
        return True

    assert spmd(program, RANKS) == [True] * RANKS


def test_notes_are_exchanged(spmd):
    def program(comm):
        words = (
            f"Grüße von {comm.rank}",
            "",
            "x" * 1000,
            f"caf\udce9 {comm.rank}",
            "\0\0",
        )
        notes = [comm.exchange(note) for note in words]
        return notes, raised(comm.exchange, "y" * 1001)[0]

    for notes, kind in spmd(program, RANKS):
        assert notes[:3] == [[f"Grüße von {r}" for r in range(RANKS)], [""] * RANKS, ["x" * 1000] * RANKS]
        assert notes[3:] == [[f"caf\udce9 {r}" for r in range(RANKS)], ["\0\0"] * RANKS]
        assert kind == ArgumentError.__name__


def test_each_rank_may_change_its_list_of_notes(spmd):
    def program(comm):
        notes = comm.exchange(str(comm.rank))
        notes.reverse()
        return notes

    assert spmd(program, RANKS) == [[str(r) for r in reversed(range(RANKS))]] * RANKS


def test_groups_check_as_the_whole_does(spmd):
    def program(comm):
        return [kin.check for kin in (comm, comm.split(0), comm.shadow, comm.stream("side").comm)]

    for check in (True, False):
        assert spmd(program, 2, check=check) == [[check] * 4] * 2


def test_groups_are_made_like_the_one_that_they_come_from(spmd):
    def program(comm):
        group = comm.split(0)
        group.check, group.cluster = False, group.cluster.with_(name="other")
        return [(kin.check, kin.cluster.name) for kin in (group.split(0), group.shadow, group.stream("side").comm)]

    assert spmd(program, 2) == [[(False, "other")] * 3] * 2


def test_what_algorithms_keep_with_a_group_goes_with_it(spmd):
    def program(comm):
        group = comm.split(0)
        group.shadow.attached["kept"] = 3
        kept = group.attached["kept"]
        group.free()
        return kept, len(group.attached)

    assert spmd(program, 2) == [(3, 0)] * 2


# -- time and memory ------------------------------------------------------------------------------------


def test_all_ranks_have_one_clock(spmd):
    def program(comm):
        comm.barrier()
        before = comm.clock()
        comm.barrier()
        after = comm.clock()
        return before, after

    times = spmd(program, RANKS)
    # Every rank came out of the second barrier after every rank had gone into it.
    assert max(before for before, _ in times) <= min(after for _, after in times)


def test_memory_for_peers_is_an_array_like_any_other(spmd):
    def program(comm):
        x = comm.empty((2, comm.rank), np.float32)
        x[...] = comm.rank
        y = comm.empty(np.int64(5), np.int64)  # a number that NumPy has worked out
        y[:] = comm.rank
        comm.barrier()
        return x.shape, bool((x == comm.rank).all()), y, getattr(y.flags, "writeable", True), y.flags.c_contiguous

    for rank, (shape, same, y, writeable, contiguous) in enumerate(spmd(program, RANKS)):
        assert shape == (2, rank)
        assert (same, writeable, contiguous) == (True, True, True)
        assert y.tolist() == [rank] * 5


@pytest.mark.one_node
@pytest.mark.mpi
def test_no_two_ranks_write_to_one_cache_line(spmd):
    if stands_in():
        pytest.skip("memory of the device's stand-in begins anywhere")
    assert spmd(lambda comm: address(comm.empty(1 + comm.rank, np.uint8)) % 64, RANKS) == [0] * RANKS


@pytest.mark.mpi
def test_messages_are_counted(spmd):
    def program(comm):
        x, y, told, other = np.zeros(1), np.zeros(1), [comm.num_messages], 1 - comm.rank
        comm.sendrecv(x, other, y, other)
        told.append(comm.num_messages)
        comm.send(x, other)
        comm.recv(y, other)
        told.append(comm.num_messages)
        for request in (comm.irecv(y, other), comm.isend(x, other)):
            request.wait()
            request.wait()
        told.append(comm.num_messages)
        comm.send(x, comm.rank)
        comm.recv(y, comm.rank)
        told.append(comm.num_messages)
        return np.diff(told).tolist()

    assert spmd(program, 2) == [[2, 2, 2, 2]] * 2


# -- the record: the same in both worlds ----------------------------------------------------------------


def talk(comm):
    """A bit of everything that leaves spans."""
    x, y = np.zeros(4), np.zeros(4)
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.sendrecv(x, after, y, before)
    with comm.span("phase", 32, micro_batch=2, detail="first"):
        request = comm.irecv(y[:2], before, 5)
        comm.send(x[:1], after, 5)
        request.wait()
    half = comm.split(comm.rank % 2)
    if half.size > 1:
        half.sendrecv(x, 1 - half.rank, y, 1 - half.rank)
    side = comm.stream("side")
    side.start(side.comm.sendrecv, x[:3], after, y[:3], before).wait()
    comm.barrier()


@needs_mpi
def test_both_worlds_keep_the_same_record():
    worlds = {world: sd.run(talk, 4, world=world) for world in ("virtual", "mpi")}
    rows = {
        world: sorted(
            (s.rank, s.stream, s.name, s.bytes, s.peer, s.tag, s.context, s.micro_batch, s.detail)
            for s in run.trace
            if not s.name.startswith("wait")  # whether there is anything to wait for is a matter of time
        )
        for world, run in worlds.items()
    }
    assert rows["mpi"] == rows["virtual"]
    assert len(rows["mpi"]) >= 4 * 13
    for span in worlds["mpi"].trace:
        assert 0 <= span.start_s <= span.end_s <= span.start_s + 60


@needs_mpi
def test_a_receive_never_ends_before_its_send_began():
    spans = sd.run(talk, 4, world="mpi").trace.spans
    sends = [s for s in spans if s.name == "send" and s.context == "world.collective"]
    receives = [s for s in spans if s.name == "recv" and s.context == "world.collective"]
    for receive in receives:
        begun = [s.start_s for s in sends if (s.rank, s.peer) == (receive.peer, receive.rank)]
        assert min(begun) <= receive.end_s


IMPOSSIBLE = {
    "objects to send": (lambda comm: comm.send(np.array([None]), 0), ArrayError, "objects have no bytes"),
    "objects to send later": (lambda comm: comm.isend(np.array([None]), 0), ArrayError, "objects have no bytes"),
    "half a tag": (lambda comm: comm.send(np.zeros(1), 0, tag=1.5), ArgumentError, "tag 1.5 on rank 0"),
    "a tag below 0": (lambda comm: comm.isend(np.zeros(1), 0, tag=-3), ArgumentError, "tag -3 on rank 0"),
    "a tag too large": (lambda comm: comm.isend(np.zeros(1), 0, tag=1 << 29), ArgumentError, "0 to 536870911"),
    "a tag too large, at once": (lambda comm: comm.send(np.zeros(1), 0, tag=1 << 29), ArgumentError, "0 to 536870911"),
    "a tag below 0 to receive": (lambda comm: comm.recv(np.zeros(1), 0, tag=-7), ArgumentError, "tag -7 on rank 0"),
    "half a tag to receive": (lambda comm: comm.irecv(np.zeros(1), 0, tag=0.5), ArgumentError, "tag 0.5 on rank 0"),
    "a tag too large to receive": (lambda comm: comm.recv(np.zeros(1), 0, 1 << 30), ArgumentError, "0 to 536870911"),
    "words to look for": (lambda comm: comm.probe("tag"), ArgumentError, "probe with tag 'tag' on rank 0"),
    "a tag below 0 to look for": (lambda comm: comm.probe(-2), ArgumentError, "probe with tag -2 on rank 0"),
    "words for a time": (lambda comm: comm.probe(until_s="soon"), ArgumentError, "probe until 'soon' s on rank 0"),
    "no time": (lambda comm: comm.probe(until_s=None), ArgumentError, "probe until None s on rank 0"),
    "words for a rank": (lambda comm: comm.send(np.zeros(1), "0"), ArgumentError, "dst '0' on rank 0"),
    "half a rank": (lambda comm: comm.send(np.zeros(1), 0.5), ArgumentError, "dst 0.5 on rank 0"),
    "nothing for a rank": (lambda comm: comm.recv(np.zeros(1), None), ArgumentError, "src None on rank 0"),
    "half a rank to exchange with": (
        lambda comm: comm.sendrecv(np.zeros(1), 0, np.zeros(1), 0.5),
        ArgumentError,
        "src 0.5 on rank 0",
    ),
    "a color too large": (lambda comm: comm.split(1 << 63), ArgumentError, "color 9223372036854775808 on rank 0"),
    "a key too small": (lambda comm: comm.split(0, -1 << 64), ArgumentError, "key -18446744073709551616 on rank 0"),
    "work below 0": (lambda comm: comm.compute(flops=-1), ArgumentError, "rank 0 cannot compute for -1 operations"),
    "less than nothing": (
        lambda comm: comm.empty(-1, float),
        ArgumentError,
        r"empty on rank 0: an array of shape \(-1",
    ),
    "more than can be counted": (
        lambda comm: comm.empty(1 << 62, float),
        ArgumentError,
        r"empty on rank 0: 3.69e\+19 bytes; needs at most 9.22e\+18",
    ),
    "objects to share": (lambda comm: comm.empty(3, object), ArgumentError, "empty of dtype object on rank 0"),
    "a shape below 0": (
        lambda comm: comm.shared((2, -1), float),
        ArgumentError,
        r"rank 0: an array of shape \(2, -1\)",
    ),
    "time that goes back": (lambda comm: comm.spend(-1), ArgumentError, "rank 0 cannot compute for -1 seconds"),
    "no end": (lambda comm: comm.spend(np.inf), ArgumentError, "cannot compute for inf seconds"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
@pytest.mark.parametrize("world", ["a rank among others", "a rank alone"])
def test_what_cannot_be_is_refused_alike_in_all_worlds(spmd, what, world):
    call, error, message = IMPOSSIBLE[what]

    def program(comm):
        if comm.rank == 0:
            with pytest.raises(error, match=message):
                call(comm)

    if world == "a rank alone":
        program(SoloCommunicator())
    else:
        spmd(program, 2)
