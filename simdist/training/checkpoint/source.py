"""Source: the files of a checkpoint, which may hold anything."""

import errno
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simdist.arrays import Array
from simdist.errors import CheckpointError, CorruptCheckpoint
from simdist.training.checkpoint.box import Box
from simdist.training.checkpoint.disk import DISK, Disk, DiskFile
from simdist.training.checkpoint.manifest import MANIFEST, Manifest, Shard
from simdist.training.checkpoint.safetensors import BLOCK_BYTES
from simdist.training.checkpoint.steps import folder_of, step_of

__all__ = ["Source", "Wanted", "manifest_bytes", "read_manifest"]

_MANIFEST_BYTES = 1 << 28  # at most; one of a million pieces has a quarter of it

# The errors for a name that is missing, a link, or no plain file.
_NO_FILE = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO}

Wanted = Mapping[str, Sequence[tuple[Box, Array]]]
"""Name of a tensor -> boxes of it, each with the array that is to get its items."""


class Source(NamedTuple):
    """A checkpoint whose manifest has been read, which says what its files must be; nothing else is ever opened."""

    folder: Path
    manifest: Manifest
    disk: Disk

    @classmethod
    def of(cls, folder: Path, data: bytes, disk: Disk) -> "Source":
        """The checkpoint in this folder, which has this manifest.

        Raises:
            CorruptCheckpoint: it is no manifest, or that of another step.
        """
        manifest = Manifest.decode(data, str(folder / MANIFEST))
        if manifest.step != step_of(folder):
            raise CorruptCheckpoint(f"{folder} holds the checkpoint of step {manifest.step}")
        return cls(folder, manifest, disk)

    def verify(self, shard: Shard) -> None:
        """Check that a shard's file is what the manifest says.

        Its header is compared, never parsed: the manifest determines every byte of it.

        Raises:
            CorruptCheckpoint: it is not.
        """
        path, layout = self.folder / shard.file, self.manifest.layout(shard)
        with _opened(self.folder, shard.file, self.disk) as file:
            if file.num_bytes != layout.num_bytes:
                raise CorruptCheckpoint(f"{path} has {file.num_bytes} bytes; it had {layout.num_bytes}")
            header = _bytes_at(file, 0, len(layout.header), path)
            if header != layout.header:
                raise CorruptCheckpoint(f"{path} is of another checkpoint, or its header was changed")
            digest = hashlib.sha256(header)
            for at in range(len(header), file.num_bytes, BLOCK_BYTES):
                digest.update(_bytes_at(file, at, min(BLOCK_BYTES, file.num_bytes - at), path))
        if digest.hexdigest() != shard.sha256:
            raise CorruptCheckpoint(f"{path} is of another checkpoint, or was changed: its SHA-256 is another")

    def read(self, wanted: Wanted) -> None:
        """Fill the arrays from the shards that hold parts of them, reading whole rows."""
        for shard in self.manifest.shards:
            layout = self.manifest.layout(shard)
            copies = [
                (name, stored, common, box, array, offset)
                for (name, stored), offset in zip(shard.pieces, layout.offsets, strict=True)
                for box, array in wanted.get(name, ())
                if (common := stored.common(box))
            ]
            if not copies:
                continue
            with _opened(self.folder, shard.file, self.disk) as file:
                for name, stored, common, box, array, offset in copies:
                    dtype = self.manifest.tensors[name].dtype
                    before, rows = stored.rows(common)  # whole rows lie side by side in the file
                    start, length = offset + before * dtype.itemsize, rows.size * dtype.itemsize
                    data = _bytes_at(file, start, length, self.folder / shard.file)
                    found = np.frombuffer(data, np.uint8).view(dtype).reshape(rows.shape)
                    array[common.within(box)] = found[common.within(rows)]


def manifest_bytes(folder: Path, disk: Disk) -> bytes:
    """The contents of the manifest's file, not yet verified.

    Raises:
        CorruptCheckpoint: there is none, or it is too large to be one.
        CheckpointError: it cannot be read.
    """
    with _opened(folder, MANIFEST, disk) as file:
        if file.num_bytes > _MANIFEST_BYTES:
            raise CorruptCheckpoint(
                f"{folder / MANIFEST} has {file.num_bytes} bytes; a manifest has at most {_MANIFEST_BYTES}"
            )
        return bytes(_bytes_at(file, 0, file.num_bytes, folder / MANIFEST))


def read_manifest(root: str | Path, step: int | None = None, disk: Disk = DISK) -> Manifest:
    """What the checkpoint of a step, or the latest, consists of, and its extra; for one process.

    Raises:
        CorruptCheckpoint: it was changed since it was written.
        CheckpointError: there is none, or it cannot be read.
    """
    folder = folder_of(root, step, disk)
    return Source.of(folder, manifest_bytes(folder, disk), disk).manifest


@contextmanager
def _opened(folder: Path, name: str, disk: Disk) -> Iterator[DiskFile]:
    """A file of a checkpoint; CorruptCheckpoint if it is missing, a link, or no plain file."""
    try:
        with disk.open(folder, name) as file:
            yield file
    except CheckpointError:
        raise
    except OSError as error:
        if error.errno in _NO_FILE:
            raise CorruptCheckpoint(f"{folder / name} is missing, or is no plain file ({error.strerror})") from error
        raise CheckpointError(f"cannot read {folder / name}: {error.strerror or error}") from error


def _bytes_at(file: DiskFile, offset: int, length: int, path: Path) -> bytearray:
    data = bytearray(length)
    if not file.read(memoryview(data), offset):
        raise CorruptCheckpoint(f"{path} ends before byte {offset + length}")
    return data
