"""Export: a checkpoint's weights as one plain file, for other programs."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from simdist.arrays import Array
from simdist.comm.solo import SoloCommunicator
from simdist.errors import CheckpointError, CheckpointMismatch
from simdist.training.checkpoint.disk import DISK, Disk
from simdist.training.checkpoint.load import load
from simdist.training.checkpoint.safetensors import Entry, Layout, write
from simdist.training.checkpoint.source import read_manifest
from simdist.training.checkpoint.tensors import ShardedTensor

__all__ = ["export"]


def export(root: str | Path, path: str | Path, step: int | None = None, *, prefix: str = "", disk: Disk = DISK) -> None:
    """Write the weights as one safetensors file, by the parameters' names, each whole; for one process.

    In PyTorch: `weights = safetensors.torch.load_file(path)`.

    Args:
        root: the folder of the checkpoints.
        path: the new file, which replaces an old one atomically.
        step: which checkpoint; the latest if None.
        prefix: tensors named by this and a parameter's name are written, under the parameter's name; "" for the
            weights themselves.

    Raises:
        CorruptCheckpoint, CheckpointError: as of `load`.
        CheckpointMismatch: there are no such tensors in it.
        CheckpointError: the file cannot be written.
    """
    path, manifest = Path(path), read_manifest(root, step, disk)
    infos = {
        name: info
        for name, info in manifest.tensors.items()
        if name.startswith(prefix) and "/" not in name[len(prefix) :]
    }
    if not infos:
        raise CheckpointMismatch(f"the checkpoint of step {manifest.step} in {root} has no tensor {prefix}…")
    arrays = {name: np.empty(info.shape, info.dtype) for name, info in infos.items()}
    wanted = {name: ShardedTensor.whole(array) for name, array in arrays.items()}
    load(root, SoloCommunicator(), wanted, manifest.step, disk=disk)
    names = sorted(infos, key=lambda name: -infos[name].dtype.itemsize)
    entries = [Entry(name[len(prefix) :], infos[name].dtype, infos[name].shape) for name in names]
    layout = Layout.of(entries, {"format": "pt", "step": str(manifest.step)})
    _write(disk, path, layout, (arrays[name] for name in names))


def _write(disk: Disk, path: Path, layout: Layout, arrays: Iterable[Array]) -> None:
    """Write a draft and rename it, so that the file is complete or absent."""
    draft = path.with_name(f"{path.name}.tmp")
    try:
        with suppress(FileNotFoundError):
            disk.remove(draft)
        write(disk, draft, layout, arrays)
        disk.rename(draft, path)
        disk.sync_folder(path.parent)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # it has its name, unless something failed or Ctrl-C was pressed
            disk.remove(draft)
