"""Plan: which rank writes what, from what each of them holds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from simdist.arrays import kind_of
from simdist.errors import ArgumentError, ArrayError
from simdist.training.checkpoint.box import Box, overlapping
from simdist.training.checkpoint.manifest import TensorInfo, fault_in
from simdist.training.checkpoint.safetensors import DTYPES
from simdist.training.checkpoint.tensors import ShardedTensor

__all__ = ["Pieces", "Plan", "holdings", "plan"]

Pieces = tuple[tuple[str, Box], ...]


class Plan(NamedTuple):
    """All tensors of the job, and the pieces that each rank writes: together every item once."""

    tensors: dict[str, TensorInfo]
    shares: list[Pieces]


def holdings(tensors: Mapping[str, ShardedTensor]) -> dict[str, Any]:
    """What a rank holds, as JSON values.

    Raises:
        ArgumentError: a tensor cannot be saved.
    """
    held = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or "[" in name or name in ("", "__metadata__"):
            raise ArgumentError(f"{name!r} cannot be a tensor's name: needs text without '['")
        if DTYPES.get(tensor.dtype.name) != tensor.dtype:
            raise ArrayError(f"{name!r} has dtype {tensor.dtype}; a checkpoint takes {', '.join(DTYPES)}")
        if any(kind_of(data) == "phantom" for _, data in tensor.pieces):
            raise ArrayError(f"{name!r} is a phantom, which has no numbers that a checkpoint could take")
        boxes = [box.spans for box, _ in tensor.pieces if box.size]
        held[name] = [tensor.shape, tensor.dtype.name, boxes]
    return held


def plan(held: Sequence[Mapping[str, Any]]) -> Plan:
    """Who writes what, from the holdings by rank. Every rank makes the same plan, or raises the same error.

    Raises:
        ArgumentError: two ranks disagree about a tensor, or no rank holds some of it.
    """
    tensors: dict[str, TensorInfo] = {}
    holders: dict[str, dict[Box, list[int]]] = {}
    for rank, words in enumerate(held):
        for name, (shape, dtype, boxes) in words.items():
            info = TensorInfo(tuple(shape), DTYPES[dtype])
            if tensors.setdefault(name, info) != info:
                other = tensors[name]
                raise ArgumentError(
                    f"rank {rank} says that {name!r} is {dtype}{shape}; "
                    f"another says {other.dtype.name}{list(other.shape)}"
                )
            known = holders.setdefault(name, {})
            for spans in boxes:
                known.setdefault(Box(tuple((start, stop) for start, stop in spans)), []).append(rank)
    parts = {name: _disjoint(holders[name]) for name in tensors}
    fault = fault_in(tensors, {name: [box for box, _ in parts[name]] for name in tensors})
    if fault:
        raise ArgumentError(f"what the ranks hold does not make up the tensors: {fault}")
    return Plan(tensors, _shares(tensors, parts, len(held)))


def _disjoint(holders: Mapping[Box, list[int]]) -> list[tuple[Box, list[int]]]:
    """The boxes cut so that none overlap, each with the ranks that hold it."""
    if overlapping(holders) is None:
        return list(holders.items())
    parts: list[tuple[Box, list[int]]] = []
    for box, who in holders.items():
        rest = [box]
        for other, _ in parts:
            rest = [left for piece in rest for left in piece.without(other)]
        parts += [(left, who) for left in rest]
    return parts


def _shares(
    tensors: Mapping[str, TensorInfo], parts: Mapping[str, Iterable[tuple[Box, list[int]]]], ranks: int
) -> list[Pieces]:
    """Assign each part to the holder with the least to write: first parts with one holder, then by size."""
    sized = [(box.size * tensors[name].dtype.itemsize, name, box, who) for name in tensors for box, who in parts[name]]
    sized.sort(key=lambda item: (len(item[3]) > 1, -item[0]))
    load = [0] * ranks
    shares: list[list[tuple[str, Box]]] = [[] for _ in range(ranks)]
    for num_bytes, name, box, who in sized:
        writer = min(who, key=lambda rank: load[rank])
        load[writer] += num_bytes
        shares[writer].append((name, box))
    order = {name: i for i, name in enumerate(tensors)}
    # Wide items first, so that each tensor begins at a multiple of its item's size.
    return [
        tuple(sorted(share, key=lambda piece: (-tensors[piece[0]].dtype.itemsize, order[piece[0]], piece[1].spans)))
        for share in shares
    ]
