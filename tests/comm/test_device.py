"""Arrays on devices between ranks: by every path, in both worlds."""

import gc

import numpy as np
import pytest
from device import stands_in

import simdist as sd
from simdist.arrays import kind_of, moved, on_host, slices
from simdist.cluster import preset
from simdist.collectives import algorithms, all_gather, all_reduce, all_to_all, broadcast, reduce, reduce_scatter
from simdist.comm import device as devices
from simdist.comm import staging
from simdist.comm.device import Device, Finding, choose_path, use_device
from simdist.comm.device_memory import led
from simdist.comm.solo import SoloCommunicator
from simdist.comm.staging import pieces
from simdist.errors import ArgumentError, MessageMismatch, UnknownNameError, WorldUnavailable

PATHS = ("ipc", "staged")


def far(x):
    """x on the device, which still has to copy it: what reads it must wait."""
    y = moved(np.zeros_like(x), "cupy")
    y[...] = moved(np.asarray(x), y)
    return y


# -- which device, which path ---------------------------------------------------------------------------------


def found(works, why):
    return lambda: Finding(works, why)


def test_the_first_path_that_works_is_gone_and_the_others_are_told_of():
    paths = {"ipc": found(False, "another node"), "staged": found(True, "always"), "last": found(True, "never asked")}
    assert choose_path("auto", paths) == ("staged", "always; not ipc: another node")
    with pytest.raises(WorldUnavailable, match="device path ipc: another node"):
        choose_path("ipc", paths)
    assert choose_path("staged", paths)[0] == "staged"
    with pytest.raises(WorldUnavailable, match="not ipc: no"):
        choose_path("auto", {"ipc": found(False, "no")})


def test_ranks_that_share_a_gpu_let_the_first_fold_for_all():
    places = ["0", "1", "0", "1", "2"]
    assert [led(places, rank) for rank in range(5)] == [[0, 2], [1, 3], [], [], [4]]


class Cards:
    """Two GPUs of this process, with 7 processors each; it notes what they are told."""

    num_devices, num_processors = staticmethod(lambda: 2), staticmethod(lambda: 7)
    name, versions = staticmethod(lambda: "Card"), staticmethod(lambda: "CUDA 12.0")

    def __init__(self):
        self.told = []

    def select(self, index):
        self.told.append(index)

    def synchronize(self):
        self.told.append("synchronize")

    def place_of(self, index):
        return f"slot {index}"


@pytest.mark.parametrize(("ranks_a_node", "taken"), [(4, [0, 1, 0, 1]), (3, [0, 1, 0, 0])])
def test_the_ranks_of_a_node_take_its_gpus_in_turn(monkeypatch, ranks_a_node, taken):
    cards = Cards()
    monkeypatch.setattr(devices, "device_library", lambda: cards)

    def program(comm):
        comm.device_paths = lambda: {"staged": found(True, "as processes")}
        use_device(comm, "cuda")
        return comm.device

    cluster = preset("this-machine").with_(devices_per_node=ranks_a_node)
    places = sd.run(program, 4, cluster=cluster).results
    assert [(at.kind, at.index, at.place, at.processors) for at in places] == [
        ("cupy", i, f"slot {i}", 7) for i in taken
    ]
    assert places[0].words.startswith("Card (CUDA 12.0), path staged: ") and cards.told == taken


def test_virtual_ranks_are_on_the_gpu_that_their_process_uses(monkeypatch):
    cards = Cards()
    monkeypatch.setattr(devices, "device_library", lambda: cards)

    def program(comm):
        use_device(comm, "cuda")
        return comm.device.index, comm.device.words, cards.told[-1]

    for index, words, used in sd.run(program, 3).results:
        assert index == used and words.startswith("Card (CUDA 12.0), path process: ")


def test_without_a_gpu_all_ranks_say_so(monkeypatch):
    monkeypatch.setattr(devices, "device_library", lambda: Blind)

    def program(comm):
        with pytest.raises(WorldUnavailable) as caught:
            use_device(comm, "cuda")
        return str(caught.value), comm.device is devices.HOST

    words = "device cuda: this process sees no GPU; it needs an NVIDIA GPU and its driver (on rank 0)"
    assert sd.run(program, 2).results == [(words, True)] * 2


def test_a_gpu_alone_is_entered_settled_and_given_short_floats(monkeypatch):
    cards = Cards()
    monkeypatch.setattr(devices, "device_library", lambda: cards)
    for at in (devices.HOST, Device("phantom"), Device("cupy", index=1, processors=3)):
        at.enter()
        at.synchronize()
        assert at.factor_dtype("short", "wide") == ("short" if at.kind == "cupy" else "wide")
        assert at.large == 64 * (3 if at.kind == "cupy" else 8)
    assert cards.told == [1, "synchronize"]


def test_a_name_that_is_none_is_refused_before_a_gpu_is_looked_for():
    for words in (("cud",), ("cuda", "wire"), ("cpu", "wire")):
        with pytest.raises(UnknownNameError, match=words[-1]):
            use_device(SoloCommunicator(), *words)


def test_what_there_is_not_is_an_error_on_all_ranks(spmd, device, monkeypatch):
    def program(comm):
        before = comm.device
        with pytest.raises(UnknownNameError, match="cud"):
            use_device(comm, "cud")
        with pytest.raises(UnknownNameError, match="wire"):
            use_device(comm, "cuda", "wire")
        if comm.rank == 1:
            monkeypatch.setattr(devices, "device_library", lambda: Blind)
        with pytest.raises(WorldUnavailable, match=r"device cuda: this process sees no GPU; .* \(on rank 1\)"):
            use_device(comm, "cuda")
        monkeypatch.undo()
        return comm.device is before

    if not spmd.real:
        pytest.skip("virtual ranks share one process, and so one library")
    assert spmd(program, 2) == [True, True]


class Blind:
    num_devices = staticmethod(lambda: 0)


def test_without_a_gpu_or_cupy_it_says_what_to_install(spmd, monkeypatch):
    def no_library():
        raise WorldUnavailable("arrays on a GPU need CuPy; install simdist[cuda13]")

    def program(comm):
        comm.barrier()  # where programs run on a device, all ranks have it by now
        monkeypatch.setattr(devices, "device_library", no_library)
        with pytest.raises(WorldUnavailable, match=r"need CuPy; install simdist\[cuda13\] \(on rank 0\)"):
            use_device(comm, "cuda")

    spmd(program, 2)


def test_what_is_made_of_a_communicator_has_its_device(spmd, device):
    def program(comm):
        use_device(comm, "cuda", "staged")
        half = comm.split(comm.rank % 2)
        side = comm.stream("side")
        kinds = [kind_of(c.empty(3, np.float32)) for c in (comm, half)]
        kinds += [side.comm.device.kind, comm.shadow.device.kind, use_device(comm, "cpu").kind]
        return [*kinds, kind_of(comm.empty(3, np.float32))]

    assert spmd(program, 2) == [["cupy", "cupy", "cupy", "cupy", "numpy", "numpy"]] * 2


def test_phantoms_lie_nowhere_and_only_virtual_ranks_have_them(spmd):
    def program(comm):
        if "process" not in comm.device_paths():
            with pytest.raises(WorldUnavailable, match="cannot go over MPI; needs virtual ranks"):
                use_device(comm, "phantom")
            return "phantom"
        use_device(comm, "phantom")
        comm.device.enter()
        comm.device.synchronize()
        return kind_of(comm.split(0).empty(3, np.float32))

    assert spmd(program, 2) == ["phantom"] * 2


# -- messages -------------------------------------------------------------------------------------------------


def test_pieces_end_with_a_short_one(monkeypatch):
    monkeypatch.setattr(staging, "PIECE_BYTES", 4)
    assert [[(p.start, p.stop) for p in pieces(n)] for n in (0, 3, 4, 9)] == [
        [(0, 0)],
        [(0, 3)],
        [(0, 4), (4, 4)],
        [(0, 4), (4, 8), (8, 9)],
    ]


@pytest.mark.parametrize("piece", [64, 1 << 20])
def test_messages_of_any_length(spmd, device, piece, monkeypatch):
    monkeypatch.setattr(staging, "PIECE_BYTES", piece)

    def program(comm):
        use_device(comm, "cuda", "staged")
        p, r = comm.size, comm.rank
        after, before, found = (r + 1) % p, (r - 1) % p, []
        for n in (0, 1, 8, 16, 100):
            x, y, z, w = (far(x) for x in (np.arange(n) + 1000.0 * r, np.zeros(n), np.zeros(n), np.zeros(n + 9)))
            comm.sendrecv(x, after, y, before)
            sent = comm.isend(far(np.arange(n) + 1000.0 * r), after, 5)
            z[...] = far(np.zeros(n))
            got = comm.irecv(z, before, 5)
            status = got.wait(), sent.wait()
            assert [tuple(s) for s in status] == [(before, 5, 8 * n), (after, 5, 8 * n)]
            got = comm.irecv(w)  # from anybody, and with more room
            sent = comm.isend(x, after, 7)
            assert tuple(got.wait()) == (before, 7, 8 * n) and sent.wait()
            want = (np.arange(n) + 1000.0 * before).tolist()
            found += [y.tolist() == want, z.tolist() == want, w.tolist() == [*want, *[0.0] * 9]]
        comm.send(far(np.arange(30.0)), r)
        comm.recv(y := far(np.zeros(30)), r)
        return [*found, y.tolist() == list(range(30))]

    assert spmd(program, 3) == [[True] * 16] * 3


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_a_short_message_and_the_next_into_one_long_array(spmd, device, monkeypatch):
    monkeypatch.setattr(staging, "PIECE_BYTES", 64)

    def program(comm):
        use_device(comm, "cuda", "staged")
        if comm.rank == 0:
            for _ in range(2):
                comm.send(far(np.ones(3)), 1, 5)
            return comm.barrier()
        got = comm.irecv(far(np.zeros(20)), 0, 5)
        comm.barrier()
        if not spmd.real:
            return got.wait()
        with pytest.raises(MessageMismatch, match="rank 1 .* shorter than the 160 bytes .* the next message"):
            got.wait()

    spmd(program, 2)


def test_a_message_is_one_on_the_record(spmd, device, monkeypatch):
    monkeypatch.setattr(staging, "PIECE_BYTES", 64)

    def program(comm):
        use_device(comm, "cuda", "staged")
        comm.recorder.on = True
        comm.recorder.rows.clear()
        x = far(np.arange(100.0) * (comm.rank == 0))
        if comm.rank == 0:
            comm.send(x, 1)
        else:
            comm.recv(x, 0)
        other = 1 - comm.rank
        comm.sendrecv(far(np.zeros(20 + 30 * comm.rank)), other, far(np.zeros(60)), other)
        rows = [(row[2], row[5], row[6]) for row in comm.recorder.rows]
        return rows[:1], sorted(rows[1:]), x.tolist() == list(range(100))

    first, second = spmd(program, 2)
    assert first == ([("send", 800, 1)], [("recv", 400, 1), ("send", 160, 1)], True)
    assert second == ([("recv", 800, 0)], [("recv", 160, 0), ("send", 400, 0)], True)


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_a_message_that_is_too_long(spmd, device, monkeypatch):
    monkeypatch.setattr(staging, "PIECE_BYTES", 64)

    def program(comm):
        use_device(comm, "cuda", "staged")
        if comm.rank == 0:
            comm.isend(far(np.zeros(20)), 1)
        else:
            with pytest.raises(MessageMismatch):
                comm.recv(far(np.zeros(3)), 0)

    if not spmd.real:
        spmd(program, 2)


def test_after_a_message_that_is_too_long_nothing_is_on_its_way(spmd, device, monkeypatch):
    monkeypatch.setattr(staging, "PIECE_BYTES", 64)

    def program(comm):
        use_device(comm, "cuda", "staged")
        if comm.rank == 0:
            comm.send(far(np.zeros(18)), 1)
            comm.send(far(np.arange(3.0)), 1, 5)
        else:
            with pytest.raises(MessageMismatch):
                comm.recv(far(np.zeros(10)), 0)  # of which the first piece comes, and the second is longer
            gc.collect()
            comm.recv(far(np.zeros(2)), 0)  # the third
            comm.recv(y := far(np.zeros(3)), 0, 5)
            return y.tolist()

    if spmd.real:
        assert spmd(program, 2)[1] == [0, 1, 2]


# -- collectives ------------------------------------------------------------------------------------------------


@pytest.mark.slow(but=3)
@pytest.mark.one_node
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_all_reduce(spmd, device, path, ranks):
    def program(comm):
        use_device(comm, "cuda", path if spmd.real else "auto")
        found = {}
        for algorithm in algorithms("all_reduce"):
            for n in (1, 7, 5000):
                x = comm.empty(n, np.int64)
                x[...] = 10**comm.rank
                y = far(np.full(n, 10**comm.rank))
                try:
                    all_reduce(x, comm, algorithm=algorithm)
                    all_reduce(y, comm, algorithm=algorithm)
                except ArgumentError as error:
                    found[algorithm] = str(error)
                    break
                found[algorithm] = x.tolist() == y.tolist() == [int("1" * ranks)] * n
        return found

    for found in spmd(program, ranks):
        refused = {name for name, said in found.items() if said is not True}
        by_messages_only = spmd.real and path == "staged"
        assert refused - {"torus"} == ({"direct"} if by_messages_only else set())
        assert not by_messages_only or "needs ipc" in found["direct"]


@pytest.mark.one_node
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [10, 100_000])
def test_collectives_in_memory_of_the_device(spmd, device, path, size):
    def program(comm):
        use_device(comm, "cuda", path if spmd.real else "auto")
        p, r = comm.size, comm.rank
        numbers = np.arange(size, dtype=np.float32)

        def made(values):
            x = comm.empty(size, np.float32)
            x[...] = far(values.astype(np.float32))
            return x

        x = made(numbers * (r == 1))
        broadcast(x, comm, root=1)
        found = [x.tolist() == numbers.tolist()]
        reduce(x, comm, root=0)
        found.append(r != 0 or x.tolist() == (p * numbers).tolist())
        part = reduce_scatter(made(numbers + r), comm)
        full = all_gather(part, comm, out=made(numbers * 0))
        found.append(full.tolist() == (p * numbers + p * (p - 1) / 2).tolist())
        rows = comm.empty((p, size), np.float32)
        rows[...] = far(np.array([numbers + 10 * r + j for j in range(p)], np.float32))
        got = all_to_all(rows, comm)
        found.append(on_host(got).tolist() == [(numbers + 10 * i + r).tolist() for i in range(p)])
        half = made(numbers).astype(np.float16)
        all_reduce(half, comm)
        return [*found, kind_of(got) == kind_of(half) == "cupy"]

    assert spmd(program, 3) == [[True] * 5] * 3


@pytest.mark.one_node
def test_an_array_outlives_the_group_that_made_it(spmd, device):
    def program(comm):
        use_device(comm, "cuda", "ipc" if spmd.real else "auto")
        group, found = comm.split(0), []
        x = group.empty(9001, np.float32)
        for _ in range(2):
            x[...] = comm.rank
            broadcast(x, comm, root=1, algorithm="direct")
            found.append(x.tolist() == [1.0] * 9001)
            group.free()
        return found

    assert spmd(program, 2) == [[True, True]] * 2


ONE_SHOT, SLICE, ALL, NOTHING = "one shot", "its slice", "the slices of all", "nothing"


@pytest.mark.one_node
@pytest.mark.parametrize(
    ("cards", "items", "own", "does"),
    [
        (1, 5000, False, [ALL, NOTHING, NOTHING]),
        (1, 5000, True, [ONE_SHOT] * 3),
        (1, 90_000, True, [ALL, NOTHING, NOTHING]),
        (3, 5000, False, [ONE_SHOT] * 3),
        (3, 300_000, False, [SLICE] * 3),
        (2, 300_000, False, ["slices 0 and 2", SLICE, NOTHING]),
    ],
)
def test_who_folds_depends_on_size_and_on_whether_ranks_share_a_card(
    spmd, device, cards, items, own, does, monkeypatch
):
    if not (spmd.real and stands_in()):
        pytest.skip("needs real ranks, and as many cards as it likes")
    monkeypatch.setenv("FAKE_CUDA_CARDS", str(cards))

    def program(comm):
        from cupy.host_kernel import launches

        use_device(comm, "cuda", "ipc")
        x = far(np.zeros(items)) if own else comm.empty(items, np.float64)
        x[...] = 10**comm.rank
        comm.recorder.rows.clear()
        launches.clear()
        all_reduce(x, comm, algorithm="direct")
        moves = [row[-1].split()[0] for row in comm.recorder.rows if row[2] == "move"]
        return bool((x == 111).all()), launches.count("fold"), sum(map(int, moves))

    share = {ONE_SHOT: items, SLICE: items // 3, ALL: items, NOTHING: 0, "slices 0 and 2": items // 3 * 2}
    taken = 8 * items if (cards, items, own) == (1, 90_000, True) else 0  # each takes back what it has left
    kernels = {NOTHING: 0, "slices 0 and 2": 2}
    assert spmd(program, 3) == [(True, kernels.get(what, 1), 3 * 8 * share[what] + taken) for what in does]


@pytest.mark.one_node
@pytest.mark.parametrize("lies", [[True, False, False], [False, True, True]])
def test_arrays_of_which_some_lie_in_common_memory(spmd, device, lies):
    def program(comm):
        use_device(comm, "cuda", "ipc" if spmd.real else "auto")
        common = comm.empty(9001, np.float32)
        x = common if lies[comm.rank] else far(np.zeros(9001, np.float32))
        x[...] = comm.rank
        broadcast(x, comm, root=1, algorithm="direct")
        return x.tolist() == [1.0] * 9001

    assert spmd(program, 3) == [True] * 3


@pytest.mark.one_node
@pytest.mark.parametrize("root", [0, 2])
def test_one_rank_moves_for_all_on_a_shared_card(spmd, device, root):
    def program(comm):
        use_device(comm, "cuda", "ipc" if spmd.real else "auto")
        x, y = comm.empty(9001, np.float32), comm.empty(9001, np.float32)
        x[...] = comm.rank + 1
        broadcast(x, comm, root=root, algorithm="direct")
        mine = slices(9001, 3)[comm.rank]
        y[mine] = comm.rank
        all_gather(y[mine], comm, out=y, algorithm="direct")
        return x.tolist() == [root + 1] * 9001, y.tolist() == [
            r for r in range(3) for _ in range(*slices(9001, 3)[r].indices(9001))
        ]

    assert spmd(program, 3) == [(True, True)] * 3


@pytest.mark.one_node
def test_memory_is_given_back(spmd, device):
    def program(comm):
        use_device(comm, "cuda", "ipc" if spmd.real else "auto")
        group = comm.split(0)
        x = group.empty(1000, np.float32)
        x[...] = 1
        all_reduce(x, group)
        total = float(x[0])
        group.free()
        return total, float(x[1])  # one's own memory stays while there are arrays in it

    assert spmd(program, 2) == [(2.0, 2.0)] * 2


@pytest.mark.one_node
def test_the_bits_of_many_ranks_are_those_of_one_kernel(spmd, device):
    def program(comm):
        use_device(comm, "cuda")
        values = np.random.default_rng(comm.rank).standard_normal(999).astype(np.float32)
        x = comm.empty(999, np.float32)
        x[...] = far(values)
        all_reduce(x, comm, algorithm="direct")
        return x.tolist(), values.tolist()

    found = spmd(program, 3)
    a, b, c = (np.array(values, np.float32) for _, values in found)
    assert all(total == ((a + b) + c).tolist() for total, _ in found)
