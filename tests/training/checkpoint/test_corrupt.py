"""Whatever is done to a checkpoint's files, all ranks are told the same, and nothing of theirs is changed."""

import json
import os
import pickle
import shutil
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from checkpointing import attempt, expected, restored, shared, state, store
from faulty_disk import ReadingDisk
from safetensors.numpy import load_file

from simdist.comm.solo import SoloCommunicator
from simdist.errors import CheckpointError, CheckpointMismatch, CorruptCheckpoint
from simdist.training.checkpoint import Box, Disk, ShardedTensor, load, read_manifest, save
from simdist.training.checkpoint.manifest import Manifest, Shard, TensorInfo, shard_name

SHARD = "shard-00001.safetensors"
P = 3


def try_to_load(comm, path):
    """The error, and whether the arrays are as they were; a checkpoint that loads is an error too."""
    tensors, vectors = state(comm, 1, lambda kind: np.full_like(expected(kind), 7))
    outcome = attempt(comm, lambda comm: load(shared(comm, path), comm, tensors))
    return outcome, all((x == 7).all() for x in vectors.values())


@pytest.fixture
def damaged(spmd, tmp_path):
    """damaged(damage) -> the words of the error after damage(folder of the checkpoint of step 10)."""

    def play(comm, damage):
        store(comm, tmp_path, step=9)
        store(comm, tmp_path, step=10)
        if comm.rank == 0:
            damage(tmp_path / "step-10")
        comm.barrier()
        found = try_to_load(comm, tmp_path)
        comm.barrier()
        return found, attempt(comm, restored, tmp_path, step=9)

    def check(damage):
        found = spmd(play, P, damage)
        assert len(set(found)) == 1
        ((kind, words), untouched), instead = found[0]
        assert kind == "CorruptCheckpoint" and untouched
        assert instead == 9
        return words

    return check


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def cut(path, length):
    os.truncate(path, length)


def swap(path, other):
    path.unlink()
    shutil.copy(other, path)


def link(path, to=None):
    """Put a symbolic link in a file's place: to a true copy, outside."""
    outside = path.parent.parent.parent / f"outside-{path.parent.parent.name}"
    path.rename(outside)
    path.symlink_to(to or outside)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def make_folder(path):
    path.unlink()
    path.mkdir()


def pickled(path):
    path.write_bytes(pickle.dumps({"w": [1.0]}))


def huge_header(path):
    path.write_bytes((1 << 60).to_bytes(8, "little") + path.read_bytes()[8:])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: flip(folder / SHARD, -1), "its SHA-256"),
        (lambda folder: flip(folder / SHARD, 20), "header was changed"),
        (lambda folder: flip(folder / SHARD, 0), "header was changed"),
        (lambda folder: cut(folder / SHARD, 200), "has 200 bytes; it had"),
        (lambda folder: cut(folder / SHARD, 0), "has 0 bytes"),
        (lambda folder: cut(folder / SHARD, 5000), "has 5000 bytes; it had"),
        (lambda folder: (folder / SHARD).unlink(), "missing"),
        (lambda folder: swap(folder / SHARD, folder.parent / "step-9" / SHARD), "of another checkpoint"),
        (lambda folder: swap(folder / SHARD, folder / "shard-00000.safetensors"), "safetensors"),
        (lambda folder: link(folder / SHARD), "no plain file"),
        (lambda folder: link(folder / SHARD, "/etc/passwd"), "no plain file"),
        (lambda folder: link(folder / SHARD, "shard-00000.safetensors"), "no plain file"),
        (lambda folder: pipe(folder / SHARD), "no plain file"),
        (lambda folder: make_folder(folder / SHARD), "no plain file"),
        (lambda folder: pickled(folder / SHARD), "bytes; it had"),
        (lambda folder: huge_header(folder / SHARD), "header was changed"),
        (lambda folder: flip(folder / "manifest.json", 300), "manifest.json is"),
        (lambda folder: flip(folder / "manifest.json", -1), "manifest.json is"),
        (lambda folder: cut(folder / "manifest.json", 300), "no manifest"),
        (lambda folder: cut(folder / "manifest.json", 0), "no manifest"),
        (lambda folder: (folder / "manifest.json").unlink(), "missing"),
        (lambda folder: link(folder / "manifest.json"), "no plain file"),
        (lambda folder: pipe(folder / "manifest.json"), "no plain file"),
        (lambda folder: pickled(folder / "manifest.json"), "no manifest"),
        (lambda folder: cut(folder / "manifest.json", 1 << 40), "a manifest has at most"),
        (
            lambda folder: swap(folder / "manifest.json", folder.parent / "step-9" / "manifest.json"),
            "holds the checkpoint of step 9",
        ),
    ],
)
def test_damage(damaged, damage, words):
    assert words in damaged(damage)


def test_a_shard_of_the_same_step_of_another_run(spmd, tmp_path):
    def play(comm):
        for run, seed in (("one", 1), ("two", 2)):
            x = np.random.default_rng([seed, comm.rank]).random(50)
            part = ShardedTensor.part(x, (150,), (slice(50 * comm.rank, 50 * comm.rank + 50),))
            save(f"{shared(comm, tmp_path)}/{run}", comm, 10, {"x": part})
        if comm.rank == 0:
            swap(tmp_path / "one" / "step-10" / SHARD, tmp_path / "two" / "step-10" / SHARD)
        comm.barrier()
        return attempt(comm, lambda comm: load(f"{shared(comm, tmp_path)}/one", comm, {}))

    found = set(spmd(play, P))
    assert len(found) == 1 and next(iter(found))[0] == "CorruptCheckpoint" and "SHA-256" in next(iter(found))[1]


def test_no_bit_of_any_file_can_change(tmp_path):
    comm = SoloCommunicator()
    save(
        tmp_path, comm, 1, {"a": ShardedTensor.whole(np.arange(6.0)), "b": ShardedTensor.whole(np.arange(3))}, {"x": 1}
    )
    for path in (tmp_path / "step-1").iterdir():
        whole = path.read_bytes()
        for at in range(len(whole)):
            bit = 1 << at % 8
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            with pytest.raises(CorruptCheckpoint):
                load(tmp_path, comm, {})
        path.write_bytes(whole)
    assert load(tmp_path, comm, {}) == (1, {"x": 1})


def test_a_link_in_the_place_of_a_step_is_none(tmp_path):
    comm = SoloCommunicator()
    store(comm, tmp_path / "elsewhere", step=10)
    store(comm, tmp_path / "here", step=9)
    (tmp_path / "here" / "step-10").symlink_to(tmp_path / "elsewhere" / "step-10")
    assert restored(comm, tmp_path / "here") == 9
    with pytest.raises(CheckpointError, match="no checkpoint of step 10"):
        restored(comm, tmp_path / "here", step=10)


# -- forged: the manifest is signed again after it was changed -------------------------------------------


def forged(damaged, change):
    """What loading says of a checkpoint whose manifest `change` has changed."""

    def forge(folder):
        manifest = read_manifest(folder.parent, 10)
        (folder / "manifest.json").write_bytes(change(manifest).encode())

    return damaged(forge)


def with_shard(manifest, number=1, **fields):
    shards = list(manifest.shards)
    shards[number] = shards[number]._replace(**fields)
    return replace(manifest, shards=tuple(shards))


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/passwd",
        "..",
        "",
        "shard-00001.safetensors/../x",
        "shard-00001.pt",
        "x/shard-00001.safetensors",
    ],
)
def test_a_path_that_leads_elsewhere_is_never_opened(damaged, name):
    assert "no name of a shard" in forged(damaged, lambda m: with_shard(m, file=name))


def test_nothing_is_opened_but_what_the_folder_holds(tmp_path):
    comm, disk = SoloCommunicator(), ReadingDisk()
    store(comm, tmp_path)
    manifest = read_manifest(tmp_path)
    (tmp_path / "step-10" / "manifest.json").write_bytes(with_shard(manifest, 0, file="../x").encode())
    with pytest.raises(CorruptCheckpoint, match="'../x' is no name of a shard"):
        load(tmp_path, comm, {}, disk=disk)
    assert disk.opened == [tmp_path / "step-10" / "manifest.json"]


def test_nothing_is_written_where_a_link_leads(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        Disk().create(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


class ShrinkingDisk(Disk):
    """Each file loses its last byte after it was opened."""

    @contextmanager
    def open(self, folder, name):
        with super().open(folder, name) as file:
            os.truncate(folder / name, file.num_bytes - 1)
            yield file


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    store(SoloCommunicator(), tmp_path)
    size = (tmp_path / "step-10" / "manifest.json").stat().st_size
    with pytest.raises(CorruptCheckpoint, match=f"manifest.json ends before byte {size}"):
        read_manifest(tmp_path, disk=ShrinkingDisk())


def test_one_file_twice(damaged):
    assert "two shards are one file" in forged(damaged, lambda m: with_shard(m, file=m.shards[0].file))


def test_parts_that_are_missing(damaged):
    words = forged(damaged, lambda m: with_shard(m, pieces=m.shards[1].pieces[1:]))
    assert "of which only" in words


def test_parts_that_overlap(damaged):
    def change(manifest):
        pieces = [(name, Box(((0, 2), *box.spans[1:])) if name == "w" else box) for name, box in every(manifest)]
        return replace(
            manifest, shards=(Shard("shard-00000.safetensors", "", (*pieces, ("w", Box(((1, 4), (0, 5)))))),)
        )

    assert "overlap" in forged(damaged, change)


def every(manifest):
    return [piece for shard in manifest.shards for piece in shard.pieces]


@pytest.mark.parametrize("spans", [((0, 99), (0, 5)), ((3, 1), (0, 5)), ((0, 4),), ((0, 2**70), (0, 5))])
def test_parts_that_cannot_be(damaged, spans):
    def change(manifest):
        pieces = tuple((name, Box(spans) if name == "w" else box) for name, box in every(manifest))
        return replace(manifest, shards=(Shard("shard-00000.safetensors", "", pieces),))

    words = forged(damaged, change)
    assert "has no part" in words or "is no part of" in words


def with_tensor(manifest, name, shape, dtype):
    return replace(manifest, tensors={**manifest.tensors, name: TensorInfo(shape, np.dtype(dtype))})


def test_another_dtype(damaged):
    assert "bytes; it had" in forged(damaged, lambda m: with_tensor(m, "w", (4, 5), "f8"))


def test_another_dtype_of_the_same_size(damaged):
    assert "header was changed" in forged(damaged, lambda m: with_tensor(m, "w", (4, 5), "i4"))


def test_another_shape(damaged):
    assert "has no part" in forged(damaged, lambda m: with_tensor(m, "w", (2, 10), "f4"))


def test_a_tensor_too_large_to_be_is_not_made_room_for(damaged):
    def change(manifest):
        big = with_tensor(manifest, "huge", (2**50, 2**10), "f4")
        return with_shard(big, pieces=(*manifest.shards[1].pieces, ("huge", Box.whole((2**50, 2**10)))))

    assert "bytes; it had" in forged(damaged, change)


def test_a_header_that_was_changed_together_with_its_digest(tmp_path):
    comm = SoloCommunicator()
    x = {"a": np.arange(4.0), "b": np.arange(4.0) + 10}
    save(tmp_path, comm, 1, {name: ShardedTensor.whole(v) for name, v in x.items()})
    manifest = read_manifest(tmp_path)
    path = tmp_path / "step-1" / manifest.shards[0].file
    path.write_bytes(path.read_bytes().replace(b'"F64"', b'"I64"', 1))
    assert load_file(path)["a"].dtype == np.int64
    forged = with_shard(manifest, 0, sha256=sha256(path.read_bytes()).hexdigest())
    (tmp_path / "step-1" / "manifest.json").write_bytes(forged.encode())
    with pytest.raises(CorruptCheckpoint, match="header was changed"):
        load(tmp_path, comm, {})


# -- the manifest by itself -----------------------------------------------------------------------------


def signed(body):
    """A manifest of anything, with a true digest."""
    text = json.dumps(body, separators=(",", ":"))
    digest = sha256(text.encode()).hexdigest()
    return json.dumps({**body, "sha256": digest}, separators=(",", ":")).encode() + b"\n"


BODY = {
    "format": "simdist checkpoint 1",
    "step": 1,
    "num_ranks": 1,
    "extra": None,
    "tensors": {"x": {"shape": [2], "dtype": "float32"}},
    "shards": [{"file": "shard-00000.safetensors", "sha256": "", "pieces": [["x", [[0, 2]]]]}],
}


def test_a_manifest_is_what_was_signed():
    many = BODY | {"shards": [BODY["shards"][0] | {"file": shard_name(123_456)}]}
    for body in (BODY, many):
        assert Manifest.decode(signed(body), "it").encode() == signed(body)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "simdist checkpoint 2"},
        {"step": -1},
        {"step": 1.0},
        {"step": True},
        {"step": "1"},
        {"num_ranks": None},
        {"tensors": []},
        {"tensors": {"x": []}},
        {"tensors": {"x": {"shape": [-2], "dtype": "float32"}}},
        {"tensors": {"x": {"shape": [2.0], "dtype": "float32"}}},
        {"tensors": {"x": {"shape": 2, "dtype": "float32"}}},
        {"tensors": {"x": {"shape": [2], "dtype": "object"}}},
        {"tensors": {"x": {"shape": [2], "dtype": ["float32"]}}},
        {"tensors": {"x": {"shape": [2], "dtype": "float32", "more": 1}}},
        {"shards": {}},
        {"shards": [3]},
        {"shards": [{"file": 3, "sha256": "", "pieces": []}]},
        {"shards": [{"file": "shard-00000.safetensors", "sha256": "", "pieces": [["y", [[0, 2]]]]}]},
        {"shards": [{"file": "shard-00000.safetensors", "sha256": "", "pieces": [["x", [[0, 2, 3]]]]}]},
        {"shards": [{"file": "shard-00000.safetensors", "sha256": "", "pieces": [["x", [["0", 2]]]]}]},
        {"shards": [{"file": "shard-00000.safetensors", "sha256": "", "pieces": ["x"]}]},
        {"shards": [{"file": "shard-00000.safetensors", "sha256": 3, "pieces": [["x", [[0, 2]]]]}]},
        {"extra": float("nan")},
        {"more": 1},
    ],
)
def test_a_manifest_that_says_something_else(change):
    with pytest.raises(CorruptCheckpoint, match="^it is (no manifest of a checkpoint: |not as it was written)"):
        Manifest.decode(signed(BODY | change), "it")


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"3", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b"9" * 100_000, b'{"a":1,"a":1}', b"NaN"],
    ids=range(10),
)
def test_what_is_no_manifest(data):
    with pytest.raises(CorruptCheckpoint, match="it is no"):
        Manifest.decode(data, "it")


def test_errors_are_of_a_kind():
    assert issubclass(CorruptCheckpoint, CheckpointError) and issubclass(CheckpointMismatch, CheckpointError)
