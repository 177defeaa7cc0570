"""Direct: every way, bits, counts, steps, record, several nodes; what lies where, and who may write when."""

import pytest
from anatomy import PAPER, UNIT, predicted, seconds
from harness import xp as np
from oracle import DTYPES, OPS

import simdist as sd
from simdist.arrays import Meter, metered, partition, phantom, reduction
from simdist.cluster import Link, preset
from simdist.collectives import all_gather, cost, formula
from simdist.collectives.direct_cost import is_short
from simdist.collectives.registry import find
from simdist.comm.peers import ROOM_BYTES
from simdist.comm.virtual.world import run_virtual

RANKS = [1, 2, 3, 4, 5, 8]
OPERATIONS = ["all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
WAYS = ["shared", "own", "staged"]
ONE = UNIT.with_(one_memory=True)
ROOM = ROOM_BYTES // 8  # items of eight bytes


def put(comm, operation, n, dtype, way, seed=0):
    """An array of this rank's, in memory of the kind asked for."""
    shape = (comm.size, n) if operation == "all_to_all" else n
    rng = np.random.default_rng([seed, comm.rank])
    values = rng.integers(0, 50, shape) if np.dtype(dtype).kind in "iub" else rng.normal(size=shape)
    x = comm.empty(shape, dtype) if way != "own" else np.empty(shape, dtype)
    x[...] = np.asarray(values.astype(dtype))
    return x


def call(comm, operation, x, op="sum", root=0, **options):
    """By `direct`, on the shadow; what this rank gets, and None where it gets nothing."""
    run, shadow, whole = find(operation, "direct").run, comm.shadow, partition(len(x), comm.size)
    match operation:
        case "all_reduce":
            run(x, shadow, reduction(op), **options)
        case "reduce":
            run(x, shadow, reduction(op), root, **options)
            return x if comm.rank == root else None
        case "reduce_scatter":
            run(x, shadow, reduction(op), **options)
            return x[whole[comm.rank]]
        case "all_gather":
            run(x, shadow, whole, **options)
        case "broadcast":
            run(x, shadow, root, **options)
        case "all_to_all":
            y = np.empty_like(x)
            run(x, y, shadow, **options)
            return y
    return x


def folded(puts, op):
    """In the order of ranks, item by item, by NumPy. A device rounds 16 bits once, at the end."""
    dtype = puts[0].dtype
    wide = np.dtype(np.float32) if np.device != "cpu" and dtype == np.float16 else dtype
    total = puts[0].astype(wide)
    for x in puts[1:]:
        total = reduction(op).ufunc(total, x.astype(wide)).astype(wide)
    return total.astype(dtype)


def expected(operation, puts, rank, op="sum", root=0):
    p, n = len(puts), len(puts[0])
    match operation:
        case "all_reduce":
            return folded(puts, op)
        case "reduce":
            return folded(puts, op) if rank == root else None
        case "reduce_scatter":
            return folded(puts, op)[partition(n, p)[rank]]
        case "all_gather":
            return np.concatenate([x[part] for x, part in zip(puts, partition(n, p), strict=True)])
        case "broadcast":
            return puts[root]
    return np.stack([x[rank] for x in puts])


def program(comm, operation, n, dtype, way, op="sum", root=0, options=None):
    x = put(comm, operation, n, dtype, way)
    before, first, meter = x.copy(), len(comm.recorder.rows), Meter()
    with metered(meter):
        got = call(comm, operation, x, op, root, staged=way == "staged", **(options or {}))
    spans = comm.recorder.spans()[first:]
    return before, None if got is None else got.copy(), counted(spans), meter.flops * x.itemsize


def counted(spans):
    """Messages, bytes read and bytes written on the record."""
    moves = [[int(part.split()[0]) for part in span.detail.split(",")[:2]] for span in spans if span.name == "move"]
    read, written = (sum(column) for column in zip((0, 0), *moves, strict=True))
    return [sum(span.name == "send" for span in spans), read, written]


def hold(spmd, p, operation, n, dtype, way, op="sum", root=0, **options):
    hold_each(spmd, p, [(operation, n, dtype, way, op, root, options)])


def hold_each(spmd, p, cases):
    """In one program: real ranks take longer to begin one than for a call."""
    found = spmd(lambda comm: [program(comm, *case) for case in cases], p)
    for case, one in zip(cases, zip(*found, strict=True), strict=True):
        check(spmd, one, *case)


def check(spmd, found, operation, n, dtype, way, op="sum", root=0, options=None):
    """The bits are NumPy's, and traffic is as the cost has it."""
    options, p = options or {}, len(found)
    puts = [before for before, *_ in found]
    where = f"{operation} of {n} {dtype} on {p} ranks, {way}, {op}, root {root}, {options}"
    took, promised = [], []
    for rank, (_, got, traffic, reduced) in enumerate(found):
        want = expected(operation, puts, rank, op, root)
        assert (got is None) == (want is None), where
        if got is not None:
            assert got.tobytes() == want.tobytes(), (rank, where)
        itemsize = np.dtype(dtype).itemsize
        case = {"ranks": p, "num_bytes": puts[0].nbytes, "itemsize": itemsize, "rank": rank, "root": root}
        by = cost(operation, "direct", **case, staged=way != "shared", **options)
        took.append([*traffic, reduced])
        promised.append([by.messages, by.read_bytes, by.written_bytes, by.reduced_bytes])
    assert alike(spmd, took, promised), where


def alike(spmd, took, promised):
    """Whether ranks sent, read, wrote and reduced what they should have.

    Where they share a GPU, one of them works for all, and reads once what many need: only what all together reduced is
    compared.
    """
    if not (spmd.real and np.device != "cpu"):
        return took == promised
    return sum(row[-1] for row in took) == sum(row[-1] for row in promised)


@pytest.mark.one_node
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_short_arrays(spmd, operation, p, way):
    lengths = sorted({0, 1, p - 1, p + 1, 3 * p + 2})
    hold_each(spmd, p, [(operation, n, "float64", way, "sum", p - 1) for n in lengths])


@pytest.mark.slow(but=7)
@pytest.mark.one_node
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_long_arrays(spmd, operation, p, way):
    """Beyond a room and a block, so that there are several of each, of unequal lengths."""
    n = 2 * ROOM + 5
    hold(spmd, p, operation, n if operation != "all_to_all" else n // p, "float64", way, root=1)


@pytest.mark.one_node
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("operation", ["all_reduce", "reduce"])
@pytest.mark.parametrize("one_shot", [False, True])
def test_the_way_may_be_chosen(spmd, operation, one_shot, way):
    lengths, options = (0, 1, 7, 3000, 9000), {"one_shot": one_shot}
    hold_each(spmd, 3, [(operation, n, "float32", way, "sum", 0, options) for n in lengths])


def test_copies_that_are_left_anyway_are_read_by_all_up_to_a_larger_size():
    """Reading more then costs less than another meeting, of which a cost counts the steps."""
    steps = {
        num_bytes: [cost("all_reduce", "direct", ranks=4, num_bytes=num_bytes, staged=on).steps for on in (False, True)]
        for num_bytes in (1 << 12, 1 << 16, 1 << 20)
    }
    assert list(steps.values()) == [[1, 1], [2, 1], [2, 2]]


@pytest.mark.one_node
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("operation", ["all_reduce", "reduce", "reduce_scatter"])
def test_every_dtype_and_op(spmd, operation, way):
    hold_each(spmd, 4, [(operation, n, dtype, way, op, 2) for dtype in DTYPES for op in OPS for n in (9, 9001)])


@pytest.mark.one_node
@pytest.mark.parametrize("way", WAYS)
def test_any_root(spmd, way):
    calls = [(operation, root) for root in range(4) for operation in ("broadcast", "reduce")]
    hold_each(spmd, 4, [(operation, 40_000, "int64", way, "sum", root) for operation, root in calls])


@pytest.mark.parametrize("way", WAYS)
def test_shards_of_any_length(spmd, way):
    lengths = [3, 0, 90_000, 1]
    stops = np.cumsum(lengths).tolist()
    chunks = [slice(stop - length, stop) for stop, length in zip(stops, lengths, strict=True)]

    def gather(comm):
        x = comm.empty(stops[-1], np.int64) if way != "own" else np.empty(stops[-1], np.int64)
        x[...] = -1
        x[chunks[comm.rank]] = comm.rank
        find("all_gather", "direct").run(x, comm.shadow, chunks, staged=way == "staged")
        return x

    for x in spmd(gather, 4):
        assert x.tolist() == [r for r in range(4) for _ in range(lengths[r])]


# -- steps and times ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_takes_a_step_for_each_meeting(operation, p, way):
    for n in (3, 1500, 9000, ROOM + 3):
        arguments = operation, n, "float64", way
        _, _, elapsed_s = run_virtual(program, p, ONE, arguments)
        num_bytes = 8 * n * (p if operation == "all_to_all" else 1)
        promised = cost(operation, "direct", ranks=p, num_bytes=num_bytes, itemsize=8, staged=way != "shared")
        looked = way == "own" and p > 1 and not is_short(num_bytes, p)  # whether it lies where all can reach it
        assert round(elapsed_s, 6) == promised.steps + looked


@pytest.mark.parametrize("num_bytes", [120, 120 * 100_003])
@pytest.mark.parametrize("p", [1, 2, 4, 5])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("one_memory", [True, False])
@pytest.mark.parametrize("staged", [False, True])
def test_takes_as_long_as_the_formula_says(operation, p, num_bytes, one_memory, staged):
    cluster, way = PAPER.with_(one_memory=one_memory), {"staged": True} if staged else {}
    if operation in ("broadcast", "reduce"):
        took_s = run_virtual(lambda comm: call(comm, operation, phantom(num_bytes, np.uint8), **way), p, cluster)[2]
    else:
        took_s = seconds(operation, "direct", p, num_bytes, cluster=cluster, **way)
    # Of parts that p does not divide the slowest rank's are some bytes more than the formula's.
    assert took_s == pytest.approx(predicted(operation, "direct", p, num_bytes, cluster=cluster, **way), rel=1e-7)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(("p", "per_node"), [(16, 8), (15, 8), (7, 4)])
@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter"])
def test_over_nodes_the_formula_too_knows_how_arrays_lie(operation, p, per_node, staged):
    cluster, n = preset("a100").with_(devices_per_node=per_node), 1 << 24
    took_s = run_virtual(lambda comm: call(comm, operation, phantom(n, np.uint8), staged=staged), p, cluster)[2]
    told = formula(operation, "direct", ranks=p, num_bytes=n, ranks_per_node=per_node, one_memory=False, staged=staged)
    assert told.on(cluster, p) == pytest.approx(took_s, rel=0.05)


@pytest.mark.parametrize("items", [1, 3000, 300_000])
@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"])
def test_to_wait_for_a_rank_that_is_late_is_no_move(operation, items):
    def late(comm):
        comm.compute(seconds=float(comm.rank == 1))
        shape = (3, items) if operation == "all_to_all" else 3 * items
        call(comm, operation, np.ones(shape, np.float32), staged=True)

    moves = [s for s in run_virtual(late, 3, PAPER)[1] if s.name == "move"]
    assert {s.rank for s in moves} == {0, 1, 2}
    assert all(s.start_s >= 1 for s in moves)


def test_peers_bytes_come_over_the_link_where_each_device_has_its_own_memory():
    near, far = (
        seconds("all_reduce", "direct", 4, 1 << 24, cluster=PAPER.with_(one_memory=one)) for one in (True, False)
    )
    share = 2 * (1 << 24) * 3 / 4
    assert far - near == pytest.approx(share / PAPER.inside.bytes_per_s - share / 600e9, rel=1e-6)


@pytest.mark.parametrize(("operation", "way", "times"), [
    ("broadcast", {}, lambda p: 2 * (p - 1) / p),  # others read their slices from root, which writes its own to them
    ("broadcast", {"staged": True}, lambda p: p - 1),  # all read all of it
    ("reduce", {}, lambda p: 2 * (p - 1) / p),  # root reads a slice of each, and is written one by each
    ("reduce", {"staged": True}, lambda p: 2 * (p - 1) / p),
])  # fmt: skip
@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("root", [0, 1])
def test_no_link_carries_more_than_it_can(operation, way, times, p, root):
    n = 1 << 26
    took_s = run_virtual(lambda comm: call(comm, operation, phantom(n, np.uint8), root=root, **way), p, PAPER)[2]
    assert took_s >= times(p) * n / PAPER.inside.bytes_per_s
    told = formula(operation, "direct", ranks=p, num_bytes=n, root=root, one_memory=False, **way)
    assert took_s == pytest.approx(told.on(PAPER, p), rel=1e-7)


def test_in_place_moves_the_least_there_can_be():
    n = 1 << 22
    for p in (2, 4, 8):
        costs = [cost("all_reduce", "direct", ranks=p, num_bytes=n, rank=r) for r in range(p)]
        assert sum(c.read_bytes + c.written_bytes for c in costs) == 2 * p * n
        assert {c[:3] for c in costs} == {(2, 0, 0)}


def test_staged_a_rank_leaves_nothing_that_it_folds_itself():
    """And reads nothing of that: of each slice p - 1 copies are written, read, written over and read again."""
    n = 1 << 22
    for p in (2, 4, 8):
        away = n * (p - 1) // p
        for operation, passes in [("all_reduce", 2), ("reduce_scatter", 1)]:
            c = cost(operation, "direct", ranks=p, num_bytes=n, staged=True)
            assert (c.read_bytes, c.written_bytes) == (passes * away, passes * away)


# -- several nodes --------------------------------------------------------------------------------------


@pytest.mark.slow(but=6)
@pytest.mark.parametrize("per_node", [1, 2, 3, 4])
@pytest.mark.parametrize("p", [4, 5, 6, 8])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_on_several_nodes(operation, p, per_node):
    cluster = preset("a100").with_(devices_per_node=per_node, one_memory=True)
    for n, way in [(1, "own"), (p - 1, "shared"), (4 * p + 1, "own"), *((30_001, way) for way in WAYS)]:
        for root in {0, p // 2, p - 1}:
            found, spans, _ = run_virtual(program, p, cluster, (operation, n, "int64", way, "sum", root))
            puts = [before for before, *_ in found]
            for rank, (_, got, traffic, reduced) in enumerate(found):
                want, where = expected(operation, puts, rank, root=root), (operation, n, way, root, rank)
                assert (got is None) == (want is None)
                assert got is None or got.tobytes() == want.tobytes(), where
                case = {"ranks": p, "num_bytes": puts[0].nbytes, "itemsize": 8, "rank": rank, "root": root}
                promised = cost(operation, "direct", **case, ranks_per_node=per_node, staged=way != "shared")
                assert traffic == [promised.messages, promised.read_bytes, promised.written_bytes], where
                assert reduced == promised.reduced_bytes, where
            inside = [s for s in spans if s.name == "send" and s.rank // per_node == s.peer // per_node]
            assert len(inside) <= (p if operation == "all_to_all" else 1) * p


@pytest.mark.parametrize("per_node", [1, 2, 3, 4])
@pytest.mark.parametrize("p", [5, 6, 8, 9])
@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather"])
def test_on_several_nodes_all_ranks_tell_the_same_steps(operation, p, per_node):
    cluster = ONE.with_(devices_per_node=per_node, eager_bytes=0)
    for n in (p, 5000, ROOM + 3):
        took_s = run_virtual(lambda comm, n=n: call(comm, operation, phantom(n, np.float64)), p, cluster)[2]
        case = {"ranks": p, "num_bytes": 8 * n, "itemsize": 8, "ranks_per_node": per_node}
        assert {cost(operation, "direct", **case, rank=rank).steps for rank in range(p)} == {round(took_s, 6)}


@pytest.mark.parametrize("num_bytes", [240, 240 * 100_003])
@pytest.mark.parametrize(("p", "per_node"), [(4, 1), (8, 4), (12, 4), (9, 4), (5, 3)])
@pytest.mark.parametrize(
    "operation", ["all_reduce", "reduce_scatter", "reduce", "all_gather", "all_to_all", "broadcast"]
)
def test_on_several_nodes_takes_as_long_as_the_formula_says(operation, p, per_node, num_bytes):
    cluster = PAPER.with_(
        devices_per_node=per_node, nics_per_node=per_node, one_memory=True, between=Link(2e-5, 5e9), eager_bytes=0
    )
    n = num_bytes // p * p
    shape = (p, n // p) if operation == "all_to_all" else n
    roots = {0, p // 2} if operation == "reduce" else {0}
    for root in roots:
        took_s = run_virtual(lambda comm, r=root: call(comm, operation, phantom(shape, np.uint8), root=r), p, cluster)[
            2
        ]
        case = {"ranks": p, "num_bytes": n, "ranks_per_node": per_node, "root": root}
        told_s = formula(operation, "direct", **case).on(cluster, p)
        if p % per_node == 0 and p // per_node != 3:
            assert took_s == pytest.approx(told_s, rel=0.01)
        else:  # it takes all nodes as full, and the trees between them as full
            assert 0.6 * told_s <= took_s <= 1.01 * told_s


# -- memory -----------------------------------------------------------------------------------------------


def places(comm):
    x, y = comm.empty(100_000, np.float32), comm.empty(100_000, np.float32)
    own = np.zeros(100_000, np.float32)
    peers = comm.shadow.peers()
    cases = {
        "the whole": x,
        "a slice": x[10:90_000],
        "another shape": x.reshape(100, 1000).reshape(-1),
        "another dtype": x.view(np.int16)[6:],
        "its own": own,
        "different slices": x[comm.rank : comm.rank + 5],
        "different arrays": (x, y)[comm.rank % 2],
        "one of them its own": x if comm.rank else own,
        "nothing of it": x[7:7],
    }
    return [[name, peers.show(z) is not None] for name, z in cases.items()]


@pytest.mark.one_node
@pytest.mark.parametrize("p", [2, 4])
def test_arrays_are_shown_where_all_lie_at_the_same_place(spmd, p):
    for found in spmd(places, p):
        assert dict(found) == {
            "the whole": True,
            "a slice": True,
            "another shape": True,
            "another dtype": True,
            "its own": False,
            "different slices": False,
            "different arrays": False,
            "one of them its own": False,
            "nothing of it": True,
        }


@pytest.mark.one_node
def test_a_group_reaches_what_its_parent_allocated(spmd):
    def two_halves(comm):
        x = comm.empty(20_000, np.int64)
        half = comm.split(comm.rank // 2, comm.rank)
        x[...] = 10**comm.rank
        comm.barrier()
        shown = half.shadow.peers().show(x) is not None
        call(half, "all_reduce", x)
        return shown, x[[0, -1]].tolist()

    assert spmd(two_halves, 4) == [(True, [11, 11])] * 2 + [(True, [1100, 1100])] * 2


@pytest.mark.one_node
def test_copies_are_good_until_the_next_meeting_and_ones_own_until_the_second_post_after_it(spmd):
    def posts(comm):
        peers, kept, right = comm.shadow.peers(), None, []
        for k in range(40):
            copies = peers.post(np.array([comm.rank, k]), np.array([k * k]))
            for r in range(comm.size):
                right.append(copies[r][:3].tolist() == [r, k, k * k])
            right.append(kept is None or kept[:3].tolist() == [comm.rank, k - 1, (k - 1) ** 2])
            kept = copies[comm.rank]
        return all(right)

    assert all(spmd(posts, 4))


def test_many_groups_in_turn(spmd):
    def groups(comm):
        pairs = [comm.split(rank, comm.rank) for rank in (comm.rank // 2, comm.rank % 2, 0)]
        found = []
        for n in (3, 5000, 60_000):
            for group in pairs:
                x = np.full(n, 10**comm.rank)
                call(group, "all_reduce", x)
                found.append(x[0] + x[-1])
        return found

    for rank, found in enumerate(spmd(groups, 4)):
        sums = [
            sum(10**r for r in range(4) if r // 2 == rank // 2),
            sum(10**r for r in range(4) if (r - rank) % 2 == 0),
        ]
        assert found == [2 * s for s in (*sums, 1111)] * 3


def test_a_phantom_leaves_the_record_of_shared_memory():
    def hollow(comm, real):
        x = put(comm, "all_reduce", 50_000, "float32", "shared") if real else phantom(50_000)
        call(comm, "all_reduce", x)

    real, phantoms = (run_virtual(hollow, 3, preset("this-machine"), (real,)) for real in (True, False))
    assert real[1] == phantoms[1]
    assert real[2] == phantoms[2] > 0


@pytest.mark.one_node
def test_both_worlds_have_the_same_bits_and_record(spmd):
    if not spmd.real:
        pytest.skip("needs real ranks")
    for way in WAYS:
        for operation in OPERATIONS:
            arguments = operation, 30_001, "float32", way
            here, there = spmd(program, 3, *arguments), sd.run(program, 3, args=arguments).results
            for (_, got, *_), (_, want, *_) in zip(here, there, strict=True):
                assert (got is None) == (want is None)
                assert got is None or got.tobytes() == want.tobytes()
            took, promised = ([[*traffic, reduced] for *_, traffic, reduced in found] for found in (here, there))
            assert np.device != "cpu" or took == promised  # of ranks that share a GPU, one works for all


@pytest.mark.parametrize("p", [4, 6])
def test_all_gather_of_ranks_that_take_turns_on_nodes(p):
    """A node's chunks are then not adjacent."""

    def program(comm):
        mixed = comm.split(0, comm.rank % 2 * comm.size + comm.rank)
        nodes = mixed.exchange(str(comm.node))
        return nodes, all_gather(np.arange(mixed.rank + 1) + 10 * mixed.rank, mixed, algorithm="direct")

    wanted = np.concatenate([np.arange(rank + 1) + 10 * rank for rank in range(p)])
    for nodes, full in sd.run(program, p, cluster=UNIT.with_(devices_per_node=2)).results:
        assert nodes != sorted(nodes)
        np.testing.assert_array_equal(full, wanted)
