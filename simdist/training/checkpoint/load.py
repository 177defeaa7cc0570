"""Load: each rank reads what it wants of one checkpoint, or, if any rank fails, none reads anything.

    saved by 2     |------- shard 0 -------|------- shard 1 -------|
    wanted by 3    |--- rank 0 ---|--- rank 1 ----|---- rank 2 ----|     rank 1 reads from both shards

First every shard's SHA-256 is checked, each node's ranks sharing the files out; then each rank reads, from the shards
that have some of it, the rows that it wants. The pieces are filled when all ranks have everything, so a failure
leaves them as they are.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import kind_of, moved
from simdist.comm import Communicator
from simdist.errors import ArrayError, CheckpointMismatch
from simdist.training.checkpoint.disk import DISK, Disk
from simdist.training.checkpoint.source import Source, Wanted, manifest_bytes
from simdist.training.checkpoint.steps import folder_of
from simdist.training.checkpoint.tensors import ShardedTensor
from simdist.training.checkpoint.together import on_rank_0, together
from simdist.training.record import broadcast_bytes

__all__ = ["Loaded", "load"]


class Loaded(NamedTuple):
    """What was loaded beside the tensors: the step, and the extra that was saved with it."""

    step: int
    extra: Any


def load(
    root: str | Path,
    comm: Communicator,
    tensors: Mapping[str, ShardedTensor],
    step: int | None = None,
    *,
    accept: Callable[[int, Any], None] = lambda step, extra: None,
    disk: Disk = DISK,
) -> Loaded:
    """Fill the pieces of these tensors, on all ranks, from a checkpoint by any number of ranks.

    Args:
        root, comm: as of `save`.
        tensors: by name, what this rank wants; other tensors of the checkpoint are ignored.
        step: which one; the latest if None.
        accept: called with the step and the extra before any piece is filled; an error on one rank is raised on all.

    Cost: each node reads the checkpoint once, and each rank once more what it wants, into memory of that size.

    Raises:
        CorruptCheckpoint: on all ranks: a file is missing, truncated, changed, not a file, or of another checkpoint.
        CheckpointMismatch: on all ranks: a tensor is not in it, or has another shape or dtype there.
        CheckpointError: on all ranks: there is no checkpoint, or a rank cannot read it.
        ArrayError: on all ranks: a piece's array is not writable.
        CollectiveMismatch: on all ranks, if they do not load the same step.
    """
    comm.agree(f"load step {step}")
    with comm.span(f"load step {'latest' if step is None else step}"):
        # All ranks judge alike which checkpoint it is, and its manifest, because rank 0 reads for all.
        folder = Path(root) / on_rank_0(comm, lambda: folder_of(root, step, disk).name)
        read: list[bytes] = []
        on_rank_0(comm, lambda: read.append(manifest_bytes(folder, disk)))
        source = Source.of(folder, broadcast_bytes(comm, b"".join(read)), disk)
        together(comm, lambda: _verify(source, comm))
        together(comm, lambda: _compare(source, tensors))
        together(comm, lambda: accept(source.manifest.step, source.manifest.extra))
        found = {name: [(box, np.empty(box.shape, t.dtype)) for box, _ in t.pieces] for name, t in tensors.items()}
        together(comm, lambda: _read(source, found, comm))
        _fill(tensors, found)
        return Loaded(source.manifest.step, source.manifest.extra)


def _verify(source: Source, comm: Communicator) -> None:
    """Check this rank's part of the files, which the ranks of a node share out."""
    neighbours = comm.nodes.neighbours(comm.rank)
    with comm.span("disk verify"):
        for shard in source.manifest.shards[neighbours.index(comm.rank) :: len(neighbours)]:
            source.verify(shard)


def _compare(source: Source, tensors: Mapping[str, ShardedTensor]) -> None:
    """Check that what this rank wants is there, and that its arrays can take it."""
    folder, known = source.folder, source.manifest.tensors
    for name, tensor in tensors.items():
        if name not in known:
            raise CheckpointMismatch(f"{folder} has no tensor {name!r}; it has {', '.join(list(known)[:8])}, …")
        shape, dtype = known[name]
        if (shape, dtype) != (tensor.shape, tensor.dtype):
            raise CheckpointMismatch(
                f"{name!r} is {dtype.name}{list(shape)} in {folder}; {tensor.dtype.name}{list(tensor.shape)} is wanted"
            )
        for box, data in tensor.pieces:
            if kind_of(data) == "phantom" or not getattr(data.flags, "writeable", True):
                raise ArrayError(f"the array for {box} of {name!r} is no writable array")


def _read(source: Source, wanted: Wanted, comm: Communicator) -> None:
    """Fill the arrays that this rank wants."""
    with comm.span("disk read", sum(x.nbytes for boxes in wanted.values() for _, x in boxes)):
        source.read(wanted)


def _fill(tensors: Mapping[str, ShardedTensor], found: Wanted) -> None:
    """Put what was read in its place."""
    for name, tensor in tensors.items():
        for (_, target), (_, x) in zip(tensor.pieces, found[name], strict=True):
            target[...] = moved(x, target)
