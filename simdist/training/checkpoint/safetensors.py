"""Safetensors: the format of a shard, which PyTorch and others read.

    8 bytes      length of the header, little-endian
    header       JSON: name -> dtype, shape and where its bytes begin and end; padded with spaces
    data         the tensors' items in C order, little-endian, without gaps

Written and read here, and not by the library of this name, because a shard is hashed as it is written and
read in parts from a file that is open already; and because a header is never parsed: the manifest says what
it must be, byte for byte.

Source: the format's own description, github.com/huggingface/safetensors.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from simdist.arrays import Array, on_host
from simdist.training.checkpoint.disk import Disk

__all__ = ["DTYPES", "Entry", "Layout", "write"]

BLOCK_BYTES = 1 << 22
"""How much is hashed and written at a time."""

_CODES = {
    np.dtype(kind): code
    for kind, code in (
        *((np.bool_, "BOOL"), (np.uint8, "U8"), (np.int8, "I8"), (np.uint16, "U16"), (np.int16, "I16")),
        *((np.uint32, "U32"), (np.int32, "I32"), (np.uint64, "U64"), (np.int64, "I64")),
        *((np.float16, "F16"), (ml_dtypes.bfloat16, "BF16"), (np.float32, "F32"), (np.float64, "F64")),
    )
}

DTYPES = {dtype.name: dtype for dtype in _CODES}
"""The dtypes that a checkpoint can hold, by NumPy's names for them."""


class Entry(NamedTuple):
    """A tensor in a file: its name there, its dtype and its shape."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Of its items."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """Where everything is in a file with these tensors, in this order, and this metadata.

    Attributes:
        header: the first bytes of the file.
        offsets: where each tensor's bytes begin.
        num_bytes: the length of the file.
    """

    header: bytes
    offsets: Sequence[int]
    num_bytes: int

    @classmethod
    def of(cls, entries: Iterable[Entry], about: Mapping[str, str]) -> "Layout":
        """The layout that follows from the tensors."""
        table: dict[str, object] = {"__metadata__": dict(about)}
        starts, at = [], 0
        for entry in entries:
            starts.append(at)
            at += entry.num_bytes
            place = [starts[-1], at]
            table[entry.name] = {"dtype": _CODES[entry.dtype], "shape": entry.shape, "data_offsets": place}
        text = json.dumps(table, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        header = len(text).to_bytes(8, "little") + text
        return cls(header, [len(header) + start for start in starts], len(header) + at)


def write(disk: Disk, path: Path, layout: Layout, arrays: Iterable[Array]) -> str:
    """Write the file and sync it; returns its SHA-256.

    Args:
        arrays: of the layout's entries, in their order; not changed.
    """
    digest = hashlib.sha256()
    with disk.new_file(path) as fd:
        disk.write(fd, layout.header)
        digest.update(layout.header)
        for array in arrays:
            for block in _blocks(array):
                disk.write(fd, block)
                digest.update(block)
    return digest.hexdigest()


def _blocks(array: Array) -> Iterator[memoryview]:
    """The array's bytes, in C order, some at a time."""
    data = np.ascontiguousarray(on_host(array)).reshape(-1).view(np.uint8).data
    return (data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES))
