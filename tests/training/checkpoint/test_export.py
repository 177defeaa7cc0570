import errno
import json

import ml_dtypes
import numpy as np
import pytest
from checkpointing import PARAMETERS, expected, store
from faulty_disk import FullDisk
from safetensors import safe_open
from safetensors.numpy import load_file

import simdist as sd
from simdist.comm.solo import SoloCommunicator
from simdist.errors import CheckpointError, CheckpointMismatch, CorruptCheckpoint
from simdist.training.checkpoint import Disk, ShardedTensor, export, save


def wanted(kind, step=10):
    """The whole tensors of this kind, by their parameters' names."""
    flat = expected(kind, step)
    return {p.name: flat[PARAMETERS.spans[p.name]].reshape(p.shape) for p in PARAMETERS}


def the_same(found, whole):
    assert set(found) == set(whole)
    for name, x in whole.items():
        assert found[name].dtype == x.dtype and found[name].shape == x.shape
        assert found[name].tobytes() == x.tobytes()


@pytest.mark.parametrize("kind", ["", "adam.m/"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_one_plain_file_of_whole_tensors(tmp_path, kind, ranks):
    sd.run(store, ranks, args=(tmp_path / "run", 1, 10))
    sd.run(store, ranks, args=(tmp_path / "run", 1, 20))
    export(tmp_path / "run", tmp_path / "model.safetensors", prefix=kind)
    the_same(load_file(tmp_path / "model.safetensors"), wanted(kind, 20))
    (tmp_path / "model.safetensors.tmp").symlink_to("model.safetensors")  # what somebody else left
    export(tmp_path / "run", tmp_path / "model.safetensors", 10, prefix=kind)  # which replaces it
    the_same(load_file(tmp_path / "model.safetensors"), wanted(kind, 10))
    assert {path.name for path in tmp_path.iterdir()} == {"run", "model.safetensors"}
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt", "step": "10"}


def test_items_of_several_widths_stand_where_they_may(tmp_path):
    kinds = {"a": "?", "b": "f8", "c": "u1", "d": "f2", "e": "i8", "f": ml_dtypes.bfloat16}
    give = {name: np.ones(3, kind) for name, kind in kinds.items()}
    save(tmp_path, SoloCommunicator(), 1, {name: ShardedTensor.whole(x) for name, x in give.items()})
    export(tmp_path, tmp_path / "all")
    with safe_open(tmp_path / "all", "np") as file:
        the_same({name: file.get_tensor(name) for name in file.keys()}, give)  # noqa: SIM118
    written = (tmp_path / "all").read_bytes()
    begin = 8 + int.from_bytes(written[:8], "little")
    header = json.loads(written[8:begin])
    assert [(begin + header[name]["data_offsets"][0]) % x.itemsize for name, x in give.items()] == [0] * 6


def test_pytorch_reads_it(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load_tensors

    sd.run(store, 4, args=(tmp_path,))
    for kind in ("", "adam.m/", "adam.v/"):
        export(tmp_path, tmp_path / "model.safetensors", prefix=kind)
        found, whole = load_tensors(tmp_path / "model.safetensors"), wanted(kind)
        assert {name: list(x.shape) for name, x in found.items()} == {n: list(x.shape) for n, x in whole.items()}
        for name, x in whole.items():
            assert str(found[name].dtype) == f"torch.{x.dtype.name}"
            assert found[name].reshape(-1).view(torch.uint8).numpy().tobytes() == x.tobytes()


class Impatient(Disk):
    """At which somebody presses Ctrl-C while it writes."""

    def write(self, fd, block):
        super().write(fd, block)
        raise KeyboardInterrupt


def test_what_cannot_be_exported(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        export(tmp_path / "run", path)
    store(SoloCommunicator(), tmp_path / "run")
    with pytest.raises(CheckpointMismatch, match="no tensor sgd.m/"):
        export(tmp_path / "run", path, prefix="sgd.m/")
    with pytest.raises(CheckpointError, match="cannot write"):
        export(tmp_path / "run", tmp_path / "no" / "folder")
    for at in range(5):
        with pytest.raises(CheckpointError, match="No space left"):
            export(tmp_path / "run", path, disk=FullDisk(at, errno.ENOSPC))
        assert {p.name for p in tmp_path.iterdir()} == {"run"}
    with pytest.raises(KeyboardInterrupt):
        export(tmp_path / "run", path, disk=Impatient())
    assert {p.name for p in tmp_path.iterdir()} == {"run"}
    (tmp_path / "run" / "step-10" / "shard-00000.safetensors").unlink()
    with pytest.raises(CorruptCheckpoint, match="missing"):
        export(tmp_path / "run", path)
    assert {p.name for p in tmp_path.iterdir()} == {"run"}
