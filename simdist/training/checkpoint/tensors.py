"""Tensors: what a rank holds of each tensor of a checkpoint."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simdist.arrays import Array
from simdist.errors import ArrayError
from simdist.nn.parameters import Parameters
from simdist.training.checkpoint.box import Box

__all__ = ["Piece", "ShardedTensor", "flat_shard"]


class Piece(NamedTuple):
    """A box of a tensor, and this rank's array with its items, of the box's shape."""

    box: Box
    data: Array


@dataclass(frozen=True)
class ShardedTensor:
    """A tensor of the whole job, and the pieces of it that this rank holds: read by `save`, written by `load`.

        rank 0  | # # . . |     rank 1  | . . # # |     a tensor split by columns: one piece on each rank
                | # # . . |             | . . # # |

    Ranks may hold the same boxes, which are written once, or boxes that do not overlap; a rank may hold none.

    Args:
        shape, dtype: of the whole tensor, the same on all ranks.
        pieces: this rank's; their arrays are views of the caller's memory.

    Raises:
        ArrayError: a piece lies outside the tensor, or its array has another shape or dtype.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: Sequence[Piece]

    def __post_init__(self) -> None:
        for box, data in self.pieces:
            if not box.fits(self.shape) or data.shape != box.shape or data.dtype != self.dtype:
                raise ArrayError(
                    f"a piece of shape {data.shape} and dtype {data.dtype} for {box} of a tensor "
                    f"of shape {self.shape} and dtype {self.dtype}: they do not fit"
                )

    @classmethod
    def whole(cls, data: Array) -> "ShardedTensor":
        """A tensor that this rank holds whole."""
        return cls(data.shape, data.dtype, (Piece(Box.whole(data.shape), data),))

    @classmethod
    def part(cls, data: Array, shape: tuple[int, ...], index: Iterable[slice]) -> "ShardedTensor":
        """A tensor of this shape of which this rank holds tensor[index], in `data`."""
        return cls(shape, data.dtype, (Piece(Box.of(index, shape), data),))


def flat_shard(x: Array, parameters: Parameters, start: int = 0, prefix: str = "") -> dict[str, ShardedTensor]:
    """A shard of a flat vector as pieces of the parameters that it covers, which are views of it.

        flat     |-- embedding.table --|--- hidden0.w ---|- hidden0.b -|
        x                   |================|
                     start -^     -> "embedding.table": its last rows, "hidden0.w": its first rows

    Args:
        x: shape (n,): items start … start+n-1 of a vector laid out as `parameters` lays it out. What goes
            beyond the last parameter, as padding does, is left out.
        prefix: of the names: "" for the weights themselves; state of the optimizer has one that ends in "/",
            such as "adamw.m/".

    Returns:
        name -> tensor, for every parameter; those that the shard does not touch have no pieces. If
        this rank has only a part of a parameter (split by columns, say), the tensor is the whole model's, and the
        parameter's `place` says where the part is.
    """
    tensors, end = {}, start + len(x)
    for parameter in parameters:
        span = parameters.spans[parameter.name]
        first, last = max(start, span.start), min(end, span.stop)
        place = parameter.place
        known = Box.of(place.index, place.shape)
        if known.shape != parameter.shape:
            raise ArrayError(
                f"{parameter.name} has shape {parameter.shape}, its place in the whole {known} has {known.shape}"
            )
        pieces, at = [], first - start
        for box in Box.stretch(first - span.start, last - span.start, parameter.shape):
            pieces.append(Piece(box.inside(known), x[at : at + box.size].reshape(box.shape)))
            at += box.size
        tensors[prefix + parameter.name] = ShardedTensor(place.shape, x.dtype, tuple(pieces))
    return tensors
