import errno
import json
import os
from dataclasses import replace
from functools import reduce
from itertools import chain, product
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from checkpointing import PARAMETERS, attempt, expected, restored, shared, state, store
from faulty_disk import ReadingDisk
from safetensors import safe_open

import simdist as sd
from simdist.arrays import Phantom
from simdist.cluster import preset
from simdist.comm.solo import SoloCommunicator
from simdist.errors import CheckpointError, CollectiveMismatch, CorruptCheckpoint
from simdist.training.checkpoint import Box, Disk, Piece, ShardedTensor, load, read_manifest, save, steps
from simdist.training.checkpoint.safetensors import BLOCK_BYTES

RANKS = (1, 2, 3, 4, 8)


@pytest.mark.parametrize("saved", RANKS)
@pytest.mark.parametrize("stage", [0, 1])
def test_any_number_of_ranks_goes_on_where_any_other_was(tmp_path, saved, stage):
    sd.run(store, saved, args=(tmp_path, stage))
    for ranks, other in product(RANKS, [0, 1]):
        assert sd.run(restored, ranks, args=(tmp_path, other)).results == [10] * ranks


@pytest.mark.parametrize(("saved", "ranks"), [(4, 2), (2, 4), (3, 1), (1, 3)])
def test_real_ranks_too(spmd, tmp_path, saved, ranks):
    def both(comm):
        root = shared(comm, tmp_path)
        some = [comm.split(0 if comm.rank < n else None, comm.rank) for n in (saved, ranks)]
        if some[0]:
            store(some[0], root)
        comm.barrier()
        return restored(some[1], root) if some[1] else None

    found = spmd(both, max(saved, ranks))
    assert found == [10] * ranks + [None] * (max(saved, ranks) - ranks)


GRID = np.arange(8 * 6, dtype=np.float32).reshape(8, 6)


def block(comm, how):
    """A rank's part of GRID, split this way."""
    p, r = comm.size, comm.rank
    rows = slice(8 * r // p, 8 * (r + 1) // p) if how == "rows" else slice(None)
    columns = slice(6 * r // p, 6 * (r + 1) // p) if how == "columns" else slice(None)
    if how == "grid":  # rows by halves, columns among the ranks of each half, some ranks the same
        rows = slice(4 * (r % 2), 4 * (r % 2) + 4) if p > 1 else slice(None)
    return rows, columns


@pytest.mark.parametrize("how", ["rows", "columns", "grid", "whole"])
@pytest.mark.parametrize("other", ["rows", "columns", "grid", "whole"])
def test_any_split_of_the_axes_becomes_any_other(tmp_path, how, other):
    def put(comm):
        index = block(comm, how)
        save(tmp_path, comm, 1, {"x": ShardedTensor.part(GRID[index], GRID.shape, index)})

    def get(comm):
        index = block(comm, other)
        found = np.zeros_like(GRID[index])
        load(tmp_path, comm, {"x": ShardedTensor.part(found, GRID.shape, index)})
        return np.array_equal(found, GRID[index])

    sd.run(put, 3)
    for ranks in (1, 2, 3, 4):
        assert all(sd.run(get, ranks).results)


def test_parts_that_overlap_are_cut(tmp_path):
    parts = [(slice(0, 5), slice(0, 4)), (slice(2, 8),), (slice(0, 3), slice(2, 6)), (slice(1, 7), slice(1, 5))]

    def put(comm):
        index = parts[comm.rank]
        save(tmp_path, comm, 1, {"x": ShardedTensor.part(GRID[index], GRID.shape, index)})

    sd.run(put, 4)
    found = np.zeros_like(GRID)
    load(tmp_path, SoloCommunicator(), {"x": ShardedTensor.whole(found)})
    np.testing.assert_array_equal(found, GRID)
    assert sum(box.size for shard in read_manifest(tmp_path).shards for _, box in shard.pieces) == GRID.size


def sizes(root, step=10):
    """The bytes of items in each shard."""
    manifest = read_manifest(root, step)
    return [
        sum(box.size * manifest.tensors[name].dtype.itemsize for name, box in shard.pieces) for shard in manifest.shards
    ]


@pytest.mark.parametrize("stage", [0, 1])
def test_what_all_have_is_written_once_and_by_all_alike(tmp_path, stage):
    sd.run(store, 4, args=(tmp_path, stage))
    found = sizes(tmp_path)
    assert sum(found) == PARAMETERS.size * (4 + 8 + 2)
    assert len(found) == 4 and max(found) - min(found) <= 8 * 24  # the largest parameter


def test_what_one_rank_alone_can_write_is_shared_out_first(tmp_path):
    """Rank 0 has 80 bytes to write that are its own, so the 100 that both have are the other's."""

    def put(comm):
        own = {"own": ShardedTensor.whole(np.zeros(80, np.uint8))} if comm.rank == 0 else {}
        save(tmp_path, comm, 10, own | {"both": ShardedTensor.whole(np.zeros(100, np.uint8))})

    sd.run(put, 2)
    assert sizes(tmp_path) == [80, 100]


def test_in_a_shard_too_items_of_several_widths_stand_where_they_may(tmp_path):
    for letters in range(1, 9):  # headers of every length
        kinds = {letter * letters: kind for letter, kind in zip("abcde", ("?", "f8", "u1", "f2", "i8"), strict=True)}
        tensors = {name: ShardedTensor.whole(np.ones(3, kind)) for name, kind in kinds.items()}
        save(tmp_path, SoloCommunicator(), letters, tensors)
        manifest = read_manifest(tmp_path, letters)
        (shard,) = manifest.shards
        for (name, _), offset in zip(shard.pieces, manifest.layout(shard).offsets, strict=True):
            assert offset % np.dtype(kinds[name]).itemsize == 0


@pytest.mark.parametrize("stage", [0, 1])
def test_others_read_the_shards(tmp_path, stage):
    sd.run(store, 3, args=(tmp_path, stage))
    manifest = read_manifest(tmp_path)
    for shard in manifest.shards:
        with safe_open(tmp_path / "step-10" / shard.file, framework="np") as file:
            assert file.metadata() == {"step": "10", "file": shard.file}
            keys = set(file.keys())
            for name, box in shard.pieces:
                kind = name[: name.find("/") + 1]
                whole = expected(kind)[PARAMETERS.spans[name[len(kind) :]]].reshape(manifest.tensors[name].shape)
                key = name if box.shape == whole.shape else f"{name}{box}"
                keys.remove(key)
                assert file.get_tensor(key).tobytes() == whole[box.within(Box.whole(whole.shape))].tobytes()
            assert not keys


def test_every_dtype_and_shape_comes_back(tmp_path):
    kinds = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", ml_dtypes.bfloat16, "f4", "f8"]
    shapes = [(), (0,), (3, 0, 2), (1,), (5,), (2, 3), (2, 1, 4)]
    bits = np.random.default_rng(0)
    give = {}
    for kind, shape in product(kinds, shapes):
        x = np.empty(shape, kind)
        x[...] = bits.integers(0, 2, shape).astype(kind)
        give[f"{np.dtype(kind).name}{len(give)}"] = x
    give["strided"] = np.arange(24.0).reshape(4, 6)[::2, 1::2].T
    comm = SoloCommunicator()
    save(tmp_path, comm, 0, {name: ShardedTensor.whole(x) for name, x in give.items()})
    found = {name: np.ones_like(x) for name, x in give.items()}
    assert load(tmp_path, comm, {name: ShardedTensor.whole(x) for name, x in found.items()}) == (0, None)
    for name, x in give.items():
        assert found[name].tobytes() == x.tobytes()


def test_more_than_is_hashed_and_written_at_a_time(tmp_path):
    comm, x = SoloCommunicator(), np.arange(2 * BLOCK_BYTES + 10).astype(np.uint8)
    save(tmp_path, comm, 1, {"x": ShardedTensor.whole(x)})
    found = np.zeros_like(x)
    load(tmp_path, comm, {"x": ShardedTensor.whole(found)})
    np.testing.assert_array_equal(found, x)


def test_a_system_that_writes_and_reads_a_little_at_a_time(tmp_path, monkeypatch):
    write, read = os.write, os.preadv
    monkeypatch.setattr("os.write", lambda fd, data: write(fd, data[:100]))
    monkeypatch.setattr("os.preadv", lambda fd, buffers, offset: read(fd, [buffers[0][:100]], offset))
    store(SoloCommunicator(), tmp_path)
    assert restored(SoloCommunicator(), tmp_path) == 10


def test_what_was_just_saved_is_kept_and_else_the_latest(tmp_path):
    """As where a run goes on from a checkpoint that is not the latest."""
    for step in (10, 20, 30):
        save(tmp_path, SoloCommunicator(), step, {})
    save(tmp_path, SoloCommunicator(), 15, {}, keep=6)  # more than there are
    assert steps(tmp_path) == [10, 15, 20, 30]
    save(tmp_path, SoloCommunicator(), 15, {}, keep=2)
    assert steps(tmp_path) == [15, 30]


def test_nothing_at_all_is_a_checkpoint(spmd, tmp_path):
    def both(comm):
        root = shared(comm, tmp_path)
        save(root, comm, 3, {}, {"only": "this"})
        return tuple(load(root, comm, {})), [path.name for path in Path(root, "step-3").iterdir()]

    assert spmd(both, 2) == [((3, {"only": "this"}), ["manifest.json"])] * 2


def test_the_last_step_that_can_be_is_the_latest(tmp_path):
    for step in (10**18 - 1, 10**17):
        save(tmp_path, SoloCommunicator(), step, {})
    assert load(tmp_path, SoloCommunicator(), {}).step == 10**18 - 1


def test_it_is_this_users_alone(tmp_path):
    sd.run(store, 2, args=(tmp_path / "new" / "folders",))
    folder = tmp_path / "new" / "folders"
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "step-10")] == [0o700] * 2
    assert {path.stat().st_mode & 0o777 for path in (folder / "step-10").iterdir()} == {0o600}


# -- reading only what is needed ------------------------------------------------------------------------


def test_a_rank_reads_the_rows_that_it_wants(tmp_path):
    comm = SoloCommunicator()
    x = np.arange(100_000, dtype=np.float32).reshape(1000, 100)
    save(tmp_path, comm, 1, {"x": ShardedTensor.whole(x), "y": ShardedTensor.whole(x + 1)})
    disk, found = ReadingDisk(), np.zeros((10, 50), np.float32)
    wanted = ShardedTensor.part(found, x.shape, (slice(500, 510), slice(20, 70)))
    load(tmp_path, comm, {"x": wanted}, disk=disk)
    np.testing.assert_array_equal(found, x[500:510, 20:70])
    shard = [(offset, length) for name, offset, length in disk.reads if name != "manifest.json"]
    header = read_manifest(tmp_path).layout(read_manifest(tmp_path).shards[0]).header
    assert sum(length for _, length in shard[:-1]) == len(header) + 2 * x.nbytes  # once, for the SHA-256
    assert shard[-1] == (len(header) + 500 * 400, 10 * 400)


@pytest.mark.parametrize(("devices_per_node", "nodes"), [(4, 1), (2, 2), (3, 2), (1, 4)])
def test_each_node_checks_each_file_once(tmp_path, devices_per_node, nodes):
    sd.run(store, 4, args=(tmp_path,))
    disks = [ReadingDisk() for _ in range(4)]
    cluster = replace(preset("this-machine"), devices_per_node=devices_per_node)
    sd.run(lambda comm: load(tmp_path, comm, {}, disk=disks[comm.rank]), 4, cluster=cluster)
    opened = [[path.name for path in disk.opened if path.name != "manifest.json"] for disk in disks]
    assert sorted(chain(*opened)) == sorted(f"shard-0000{r}.safetensors" for r in range(4) for _ in range(nodes))
    assert max(map(len, opened)) - min(map(len, opened)) <= (0 if devices_per_node != 3 else 3)


# -- refusals -----------------------------------------------------------------------------------------


def refused(spmd, tensors, ranks=3, extra=lambda comm: None, step=1, path=None, **options):
    """The error that all ranks got from save."""

    def put(comm):
        root = shared(comm, path)
        return attempt(comm, lambda comm: save(root, comm, step, tensors(comm), extra(comm), **options))

    errors = set(spmd(put, ranks))
    assert len(errors) == 1
    return errors.pop()


def test_what_is_held_must_make_up_the_tensors(spmd, tmp_path):
    def half(comm):
        index = (slice(0, 4), slice(None)) if comm.rank < 2 else (slice(7, 8),)
        return {"x": ShardedTensor.part(GRID[index], GRID.shape, index)}

    assert refused(spmd, half, path=tmp_path / "new") == (
        "ArgumentError",
        "what the ranks hold does not make up the tensors: 'x' has 48 items, of which only 30 are there",
    )
    assert not (tmp_path / "new").exists()


def test_ranks_must_speak_of_the_same_tensors(spmd, tmp_path):
    def shapes(comm):
        return {"x": ShardedTensor.whole(np.zeros(3 + (comm.rank == 1), np.float32))}

    def dtypes(comm):
        return {"x": ShardedTensor.whole(np.zeros(3, "f8" if comm.rank == 1 else "f4"))}

    kind, words = refused(spmd, shapes, path=tmp_path)
    assert kind == "ArgumentError" and words == "rank 1 says that 'x' is float32[4]; another says float32[3]"
    assert "rank 1 says that 'x' is float64[3]" in refused(spmd, dtypes, path=tmp_path)[1]


@pytest.mark.parametrize("name", ["", "__metadata__", "w[0:3]"])
def test_names_that_cannot_be(spmd, tmp_path, name):
    def tensors(comm):
        return {name: ShardedTensor.whole(np.zeros(3))} if comm.rank == 1 else {}

    kind, words = refused(spmd, tensors, path=tmp_path)
    assert kind == "ArgumentError" and words.startswith(f"rank 1: {name!r} cannot be a tensor's name")


@pytest.mark.parametrize("x", [np.zeros(3, "c16"), np.zeros(3, ">f4"), np.zeros(3, "S4"), Phantom((3,), np.float32)])
def test_arrays_that_cannot_be(spmd, tmp_path, x):
    kind, words = refused(spmd, lambda comm: {"x": ShardedTensor.whole(x)}, path=tmp_path)
    assert kind == "ArrayError" and words.startswith("rank 0: 'x'")


DEEP = reduce(lambda inner, _: [inner], range(100_000), [])


@pytest.mark.parametrize(
    "extra", [(1, 2), {1: 2}, float("nan"), b"bytes", {"a": np.zeros(2)}, {"b": object()}, DEEP], ids=range(7)
)
def test_extras_that_would_not_come_back(spmd, tmp_path, extra):
    kind, words = refused(spmd, lambda comm: {}, extra=lambda comm: extra, path=tmp_path)
    assert kind == "ArgumentError" and words.startswith("rank 0: extra")


def test_of_one_rank_nobody_asks_which(spmd, tmp_path):
    _, words = refused(spmd, lambda comm: {}, ranks=1, extra=lambda comm: b"bytes", path=tmp_path)
    assert words.startswith("extra")


def test_the_extra_is_one(spmd, tmp_path):
    kind, words = refused(spmd, lambda comm: {}, extra=lambda comm: comm.rank // 2, path=tmp_path)
    assert kind == "ArgumentError" and words.startswith("rank 2 gave another extra")


@pytest.mark.parametrize(
    "options", [{"step": -1}, {"step": 10**18}, {"step": 1.0}, {"step": True}, {"keep": 0}, {"keep": 1.5}]
)
def test_numbers_that_cannot_be(spmd, tmp_path, options):
    kind, words = refused(spmd, lambda comm: {}, path=tmp_path, **options)
    name, value = next(iter(options.items()))
    assert kind == "ArgumentError" and f"{name} is {value!r}" in words


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("save", lambda root, comm: save(root, comm, comm.rank, {})),
        ("save", lambda root, comm: save(root, comm, 1, {}, keep=1 + comm.rank)),
        ("load", lambda root, comm: load(root, comm, {}, comm.rank)),
    ],
)
def test_ranks_must_save_and_load_the_same(tmp_path, verb, call):
    with pytest.raises(CollectiveMismatch, match=f"{verb} step"):
        sd.run(lambda comm: call(tmp_path, comm), 3)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_something_else(spmd, tmp_path):
    def get(comm, tensor):
        root = shared(comm, tmp_path)
        return attempt(comm, lambda comm: load(root, comm, tensor if comm.rank == 1 else {}))

    spmd(lambda comm: store(comm, tmp_path), 3)
    for tensor, kind, words in [
        ({"v": ShardedTensor.whole(np.zeros((4, 5), "f4"))}, "CheckpointMismatch", "has no tensor 'v'"),
        ({"w": ShardedTensor.whole(np.zeros((5, 4), "f4"))}, "CheckpointMismatch", r"float32[4, 5] in"),
        ({"w": ShardedTensor.whole(np.zeros((4, 5), "f8"))}, "CheckpointMismatch", r"float64[4, 5] is wanted"),
        ({"w": ShardedTensor.whole(np.broadcast_to(np.zeros((), "f4"), (4, 5)))}, "ArrayError", "no writable array"),
        ({"w": ShardedTensor.whole(Phantom((4, 5), np.float32))}, "ArrayError", "no writable array"),
    ]:
        found = set(spmd(get, 3, tensor))
        assert len(found) == 1
        assert next(iter(found))[0] == kind and words in next(iter(found))[1], found


def test_no_checkpoint(spmd, tmp_path):
    def get(comm, step=None):
        return attempt(comm, restored, tmp_path / "none", step=step)

    assert {kind for kind, _ in spmd(get, 2)} == {"CheckpointError"}
    spmd(lambda comm: store(comm, tmp_path / "none"), 2)
    assert spmd(get, 2) == [10, 10]
    found = spmd(get, 2, 11)
    assert found[0] == found[1] and "no checkpoint of step 11" in found[0][1] and "of steps 10" in found[0][1]


def test_what_cannot_be_read_at_the_moment_is_not_taken_for_corrupt(tmp_path):
    class Failing(Disk):
        def open(self, folder, name):
            raise OSError(errno.EIO, "Input/output error")

    comm = SoloCommunicator()
    for step in (1, 2):
        save(tmp_path, comm, step, {})
    with pytest.raises(CheckpointError, match=r"cannot read .*step-2.*Input/output") as caught:
        load(tmp_path, comm, {}, disk=Failing())
    assert not isinstance(caught.value, CorruptCheckpoint)


# -- the record ---------------------------------------------------------------------------------------


def test_it_is_on_the_record(tmp_path):
    trace = sd.run(store, 2, args=(tmp_path,)).trace
    written = [span for span in trace.spans if span.name == "disk write"]
    on_disk = [(tmp_path / "step-10" / f"shard-0000{r}.safetensors").stat().st_size for r in range(2)]
    assert [span.bytes for span in written] == on_disk
    assert len([span for span in trace.spans if span.name == "save step 10"]) == 2
    again = sd.run(restored, 2, args=(tmp_path,)).trace
    assert [span.bytes for span in again.spans if span.name == "disk read"] == [
        sum(x.nbytes for x in state(SimpleNamespace(size=2, rank=r), 1, expected)[1].values()) for r in range(2)
    ]
    for name in ("load step latest", "disk verify"):
        assert len([span for span in again.spans if span.name == name]) == 2
    assert json.loads((tmp_path / "step-10" / "manifest.json").read_text())["step"] == 10


def test_pieces_may_be_listed_by_hand(tmp_path):
    data = np.arange(6.0)
    pieces = (Piece(Box(((0, 1),)), data[5:]), Piece(Box(((1, 6),)), data[:5]))
    save(tmp_path, SoloCommunicator(), 1, {"x": ShardedTensor((6,), data.dtype, pieces)})
    found = np.zeros(6)
    load(tmp_path, SoloCommunicator(), {"x": ShardedTensor.whole(found)})
    assert found.tolist() == [5, 0, 1, 2, 3, 4]


def test_state_is_what_the_tests_think(tmp_path):
    tensors, vectors = state(SoloCommunicator(), 1, expected)
    assert len(tensors) == 3 * len(PARAMETERS) and {len(x) for x in vectors.values()} == {PARAMETERS.size}
