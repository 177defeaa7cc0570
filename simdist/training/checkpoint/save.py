"""Save: all ranks write one checkpoint together.

    all ranks     what each holds   ->  who writes what; items that several hold are written by one
    rank 0        make step-N.tmp
    all ranks     shard-00000.safetensors, shard-00001.safetensors, …       each synced
    rank 0        manifest.json, synced   ->  rename step-N.tmp to step-N   ->  remove the oldest

A crash at any moment leaves all earlier checkpoints, and this one either complete or absent.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.collectives import all_gather
from simdist.comm import Communicator
from simdist.errors import ArgumentError, CheckpointError
from simdist.training.checkpoint.box import Box
from simdist.training.checkpoint.disk import DISK, Disk
from simdist.training.checkpoint.manifest import MANIFEST, Manifest, Shard, shard_name
from simdist.training.checkpoint.plan import Pieces, Plan, holdings, plan
from simdist.training.checkpoint.safetensors import write
from simdist.training.checkpoint.steps import begin, commit, draft_of, prune, tidy
from simdist.training.checkpoint.tensors import ShardedTensor
from simdist.training.checkpoint.together import on_rank_0, together

__all__ = ["save"]


def save(
    root: str | Path,
    comm: Communicator,
    step: int,
    tensors: Mapping[str, ShardedTensor],
    extra: Any = None,
    *,
    keep: int | None = None,
    disk: Disk = DISK,
) -> None:
    """Write what all ranks together hold as root/step-N, replacing an existing one.

    Args:
        root: a folder that all ranks can access, for the checkpoints of one run at a time; created if missing.
        comm: all of its ranks must call.
        step: how many steps are done.
        tensors: by name, what this rank holds; a rank that holds nothing of one need not name it. Names have
            no "[". Those of weights are the parameters'; state beside them has a "/" in its name.
        extra: whatever else is needed to resume (the config, counters, the state of a generator), the same on
            all ranks, of types that survive a round trip through JSON.
        keep: how many of the latest checkpoints to keep, including this one; all if None.

    Cost: each item is written once, by one of its holders, so that ranks write about the same number of bytes.

    Raises:
        ArgumentError: on all ranks: the pieces do not make up the tensors, or something cannot be saved.
        CheckpointError: on all ranks: a rank could not write; an incomplete checkpoint is removed.
        CollectiveMismatch: on all ranks, if they do not save the same step.
    """
    root = Path(root)
    comm.agree(f"save step {step}, keep {keep}")
    with comm.span(f"save step {step}"):
        agreed = _agreed_plan(comm, step, tensors, extra, keep)
        draft = Manifest(step, comm.size, extra, agreed.tensors, ())
        _write_all(comm, root, draft, agreed.shares, tensors, disk)
        if keep is not None:
            on_rank_0(comm, lambda: prune(root, step, keep, disk))


def _write_all(
    comm: Communicator,
    root: Path,
    draft: Manifest,
    shares: list[Pieces],
    tensors: Mapping[str, ShardedTensor],
    disk: Disk,
) -> None:
    """Write each rank's share, then the manifest; if anything fails, remove what there is."""
    try:
        on_rank_0(comm, lambda: begin(root, draft.step, disk))
        digests = together(comm, lambda: _write(comm, root, draft, shares[comm.rank], tensors, disk))
        on_rank_0(comm, lambda: _finish(root, draft, shares, digests, disk))
    except CheckpointError as error:
        with suppress(CheckpointError):
            on_rank_0(comm, lambda: tidy(root, disk))  # all wait for it, as a rank that fails may end the others
        raise CheckpointError(f"cannot write the checkpoint of step {draft.step} in {root}: {error}") from error


def _agreed_plan(
    comm: Communicator, step: int, tensors: Mapping[str, ShardedTensor], extra: Any, keep: int | None
) -> Plan:
    """Exchange what each rank holds, and make a plan."""
    texts: list[bytes] = []

    def prepare() -> str:
        if type(step) is not int or not 0 <= step < 10**18:
            raise ArgumentError(f"step is {step!r}; needs a whole number of at least 0")
        if keep is not None and (type(keep) is not int or keep < 1):
            raise ArgumentError(f"keep is {keep!r}; needs a whole number of at least 1, or None")
        texts.append(json.dumps(holdings(tensors)).encode() + b"\n")
        return _digest(extra)

    digests = together(comm, prepare)
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            raise ArgumentError(f"rank {rank} gave another extra than rank 0; it must be the same on all ranks")
    full = all_gather(np.frombuffer(texts[0], np.uint8), comm)
    return plan([json.loads(line) for line in full.tobytes().splitlines()])


def _digest(extra: Any) -> str:
    try:
        text = json.dumps(extra, allow_nan=False)
        same = json.loads(text) == extra
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"extra cannot be saved as JSON: {error}") from error
    if not same:
        raise ArgumentError("extra does not survive a round trip through JSON: use lists for tuples and text for keys")
    return hashlib.sha256(text.encode()).hexdigest()


def _write(
    comm: Communicator, root: Path, draft: Manifest, share: Pieces, tensors: Mapping[str, ShardedTensor], disk: Disk
) -> str:
    """Write this rank's shard, if it has one; its SHA-256."""
    if not share:
        return ""
    shard = Shard(shard_name(comm.rank), "", share)
    layout = draft.layout(shard)
    with comm.span("disk write", layout.num_bytes):
        arrays = (_items(tensors[name], box) for name, box in share)
        return write(disk, draft_of(root, draft.step) / shard.file, layout, arrays)


def _items(tensor: ShardedTensor, box: Box) -> Array:
    """The items in a box, which this rank holds in one piece, as the plan says."""
    return next(data[box.within(whole)] for whole, data in tensor.pieces if whole.holds(box))


def _finish(root: Path, draft: Manifest, shares: list[Pieces], digests: list[str], disk: Disk) -> None:
    """Write the manifest, and commit the checkpoint."""
    shards = tuple(
        Shard(shard_name(rank), digest, share)
        for rank, (digest, share) in enumerate(zip(digests, shares, strict=True))
        if share
    )
    with disk.new_file(draft_of(root, draft.step) / MANIFEST) as fd:
        disk.write(fd, replace(draft, shards=shards).encode())
    commit(root, draft.step, disk)
