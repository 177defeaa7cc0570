"""Manifest: what a checkpoint consists of. It is written last, and nothing in the folder counts without it."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from simdist.errors import CorruptCheckpoint
from simdist.training.checkpoint.box import Box, overlapping
from simdist.training.checkpoint.safetensors import DTYPES, Entry, Layout

__all__ = ["MANIFEST", "Manifest", "Shard", "TensorInfo", "fault_in", "shard_name"]

MANIFEST = "manifest.json"
"""The file's name."""

_FORMAT = "simdist checkpoint 1"
_SHARD = re.compile(r"shard-[0-9]{5,}\.safetensors")


class TensorInfo(NamedTuple):
    """A tensor of the whole job."""

    shape: tuple[int, ...]
    dtype: np.dtype


class Shard(NamedTuple):
    """A file, its SHA-256, and its pieces in order: each a tensor's name and a box of it."""

    file: str
    sha256: str
    pieces: tuple[tuple[str, Box], ...]


def shard_name(rank: int) -> str:
    """The file that a rank writes."""
    return f"shard-{rank:05d}.safetensors"


@dataclass(frozen=True)
class Manifest:
    """All that is known of a checkpoint.

    The file is JSON, and holds the SHA-256 of itself without that entry. A file changed by even one bit is
    refused.

    Args:
        step: how many training steps were done.
        extra: what else was saved: anything that JSON can hold.
        tensors: by name; the shards' pieces cover each of them exactly.
    """

    step: int
    num_ranks: int
    extra: Any
    tensors: Mapping[str, TensorInfo]
    shards: tuple[Shard, ...]

    def layout(self, shard: Shard) -> Layout:
        """The layout of a shard's file. A whole tensor has its own name there; to that of a part its box is added."""
        entries = []
        for name, box in shard.pieces:
            shape, dtype = self.tensors[name]
            entries.append(Entry(name if box.shape == shape else f"{name}{box}", dtype, box.shape))
        return Layout.of(entries, {"step": str(self.step), "file": shard.file})

    def encode(self) -> bytes:
        """The file."""
        body = {
            "format": _FORMAT,
            "step": self.step,
            "num_ranks": self.num_ranks,
            "extra": self.extra,
            "tensors": {name: {"shape": shape, "dtype": dtype.name} for name, (shape, dtype) in self.tensors.items()},
            "shards": [
                {"file": file, "sha256": sha256, "pieces": [[name, box.spans] for name, box in pieces]}
                for file, sha256, pieces in self.shards
            ],
        }
        digest = hashlib.sha256(_json(body)).hexdigest()
        return _json({**body, "sha256": digest}) + b"\n"

    @classmethod
    def decode(cls, data: bytes, where: str) -> "Manifest":
        """What `encode` gave.

        Raises:
            CorruptCheckpoint: it is anything else, or its pieces do not make up its tensors.
        """
        try:
            manifest = _parsed(json.loads(data))
            same = manifest.encode() == data
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptCheckpoint(f"{where} is no manifest of a checkpoint: {error!r:.200}") from error
        if not same:
            raise CorruptCheckpoint(f"{where} is not as it was written")
        boxes: dict[str, list[Box]] = {name: [] for name in manifest.tensors}
        for shard in manifest.shards:
            for name, box in shard.pieces:
                boxes[name].append(box)
        fault = fault_in(manifest.tensors, boxes)
        if fault:
            raise CorruptCheckpoint(f"{where}: {fault}")
        return manifest


def fault_in(tensors: Mapping[str, TensorInfo], boxes: Mapping[str, Iterable[Box]]) -> str:
    """Why these boxes are not all of these tensors, each item once; empty if they are."""
    for name, (shape, _) in tensors.items():
        found = list(boxes[name])
        for box in found:
            if not box.fits(shape) or box.size == 0:
                return f"{name!r} of shape {list(shape)} has no part {box}"
        overlap = overlapping(found)
        if overlap:
            return f"{name!r}: the parts {overlap[0]} and {overlap[1]} overlap"
        there, whole = sum(box.size for box in found), Box.whole(shape).size
        if there != whole:
            return f"{name!r} has {whole} items, of which only {there} are there"
    return ""


def _json(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


# A file may hold anything, so each value is checked before it is used; `decode` catches what a check raises.


def _parsed(body: Any) -> Manifest:
    if body["format"] != _FORMAT:
        raise ValueError(f"its format is {body['format']!r}; this reads {_FORMAT!r}")
    tensors = {}
    for name, info in body["tensors"].items():
        tensors[name] = TensorInfo(tuple(_count(n) for n in info["shape"]), DTYPES[info["dtype"]])
    shards = tuple(_shard(item, tensors) for item in body["shards"])
    if len({shard.file for shard in shards}) < len(shards):
        raise ValueError("two shards are one file")
    return Manifest(_count(body["step"]), _count(body["num_ranks"]), body["extra"], tensors, shards)


def _shard(item: Any, tensors: Mapping[str, TensorInfo]) -> Shard:
    file = item["file"]
    if not _SHARD.fullmatch(file):  # no folder, no .., nothing else that could lead elsewhere
        raise ValueError(f"{file!r} is no name of a shard")
    pieces = []
    for name, spans in item["pieces"]:
        box = Box(tuple((_count(start), _count(stop)) for start, stop in spans))
        if len(box.spans) != len(tensors[name].shape):
            raise ValueError(f"{box} is no part of {name!r}")
        pieces.append((name, box))
    return Shard(file, str(item["sha256"]), tuple(pieces))


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.50} where a whole number of at least 0 should be")
    return value
