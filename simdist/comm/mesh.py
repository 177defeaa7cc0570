"""Mesh: the ranks of a communicator as a grid with named axes."""

import math
from collections.abc import Mapping
from typing import cast

from simdist.comm.communicator import Communicator
from simdist.errors import ArgumentError, require_kind, require_known, require_whole

__all__ = ["AXES", "Mesh", "full_sizes"]

AXES = ("pp", "dp", "ep", "sp", "tp")
"""The axes from the outermost to the innermost. Neighbours along the last have consecutive ranks, so that tensor
parallelism, which communicates most, stays inside a node; pipeline stages communicate least and may be far apart."""


class Mesh:
    """A grid of ranks: `mesh.dp` is the communicator of the ranks that differ from this one only in dp.

    Mesh(comm, dp=2, tp=2) on four ranks:

                 tp 0    tp 1
        dp 0    rank 0  rank 1        on rank 2:  mesh.tp has ranks 2, 3
        dp 1    rank 2  rank 3                    mesh.dp has ranks 0, 2

    Every rank of comm must build it, with the same sizes.

    Args:
        comm: the ranks to arrange.
        sizes: by axis: pp (pipeline), dp (data), ep (expert), sp (sequence), tp (tensor); 1 where not given.

    Attributes:
        comm: as given.
        sizes: by axis, all five.
        coordinates: this rank's place, by axis.
        pp, dp, ep, sp, tp: the communicator along that axis; its rank is the coordinate.

    Raises:
        ArgumentError: a size that is no whole number of at least 1, an unknown axis, or sizes whose product is not
            comm.size.
        CollectiveMismatch: the sizes are not the same on all ranks; on every rank.
    """

    pp: Communicator
    dp: Communicator
    ep: Communicator
    sp: Communicator
    tp: Communicator

    def __init__(self, comm: Communicator, **sizes: int) -> None:
        require_kind("comm", comm, Communicator)
        comm.agree(f"mesh of {_product(dict(sorted(sizes.items())))}")  # first, so that all refuse what one cannot use
        self.comm = comm
        self.sizes: Mapping[str, int] = full_sizes(sizes, comm.size)
        self.coordinates = coordinates(comm.rank, self.sizes)
        for axis in AXES:
            setattr(self, axis, self.group(axis))

    def __repr__(self) -> str:
        return f"<mesh of {_product(self.sizes)}, rank {self.comm.rank}>"

    def group(self, *axes: str) -> Communicator:
        """The communicator of the ranks that differ from this one only in these axes, ordered by rank."""
        for axis in axes:
            require_known("axis", axis, AXES)
        color = 0
        for axis in AXES:
            if axis not in axes:
                color = color * self.sizes[axis] + self.coordinates[axis]
        return cast(Communicator, self.comm.split(color, self.comm.rank))  # only a rank without a color has no group


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """The coordinates of a rank in a grid of these sizes, by axis."""
    places = {}
    for axis in reversed(AXES):
        rank, places[axis] = divmod(rank, sizes[axis])
    return {axis: places[axis] for axis in AXES}


def full_sizes(sizes: Mapping[str, int], ranks: int) -> dict[str, int]:
    """The sizes of all axes; raises ArgumentError, as `Mesh` does, if they do not fit this many ranks."""
    for axis, size in sizes.items():
        require_known("axis", axis, AXES)
        require_whole(f"the size of axis {axis}", size, 1)
    full = {axis: sizes.get(axis, 1) for axis in AXES}
    if math.prod(full.values()) != ranks:
        raise ArgumentError(f"{_product(full)} = {math.prod(full.values())} ranks, but there are {ranks}")
    return full


def _product(sizes: Mapping[str, int]) -> str:
    """The axes with more than one rank, in words."""
    return " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size != 1) or "1"
