"""Fold: the same slice of all ranks' arrays, reduced in place, block by block.

blocks   b0 b1 b2 b3         of the arrays of ranks 0 to 3: short enough to be in a core's own cache together
t        b0 + b1 + b2        in the order of ranks, so that the bits are always the same
total    t + b3              goes to the first rank that gets it, and from there to the others
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from simdist.arrays import Array, Reduction, slices
from simdist.arrays.blocks import blocks
from simdist.arrays.fused import kernel
from simdist.arrays.meter import current_meter
from simdist.arrays.working import short
from simdist.comm.peers import Peers, Views

__all__ = ["Slice", "copy_to", "fold_all", "fold_in_place", "led_slices", "runs"]

_BLOCKS_BYTES = 1 << 19
"""Of all arrays at a time: what is read for the sum is still in a core's own cache when the sum is written over it."""
_LEAST_BLOCK_BYTES = 1 << 15
_MOST_KEPT = 64  # blocks of one array


def _chain(arrays: Sequence[Array], total: Array, spare: Array) -> Iterator[tuple[Array, Array, Array]]:
    """The steps, each (x, y, where x op y goes), that leave in `total` the reduction of the arrays, two or more, in
    order.

    Args:
        total: may be one of the arrays.
        spare: as long; overwritten. May be `total`, or the first array, but no other.
    """
    some = arrays[0]
    for x in arrays[1:-1]:
        yield some, x, spare
        some = spare
    yield some, arrays[-1], total


def fold_all(op: Reduction, arrays: Sequence[Array], total: Array, spare: Array) -> None:
    """Leave in `total` the reduction of the arrays in order, as `_chain` says; on a device, by one kernel."""
    fold_to = kernel("fold", "fold_to", total)
    if fold_to is not None and op.known:
        fold_to(op.name, arrays, [total])
        return
    combine = op.combine if total.dtype in short else op.ufunc
    for x, y, out in _chain(arrays, total, spare):
        combine(x, y, out=out)


def copy_to(x: Array, outs: Sequence[Array]) -> None:
    """Write x to all of these; a device reads it once for all of them."""
    spread = kernel("fold", "copy_to", x)
    if spread is not None:
        spread(x, outs)
    else:
        for out in outs:
            out[...] = x


class Slice:
    """One slice of all ranks' arrays.

    Args:
        arrays: of one dtype, and at least as long.
        part: the slice.

    Attributes:
        blocks: the blocks of the slice, each with its part of every array.
        items, num_bytes: of the slice of one array.
    """

    __slots__ = ("_fold_to", "_plans", "_rounded", "blocks", "items", "num_bytes")

    def __init__(self, arrays: Sequence[Array], part: slice) -> None:
        dtype, start, self.items = arrays[0].dtype, part.start, part.stop - part.start
        block_bytes = max(_LEAST_BLOCK_BYTES, _BLOCKS_BYTES // len(arrays))
        cuts = blocks(self.items, dtype.itemsize, arrays[0], block_bytes)
        self.blocks = [[x[start + cut.start : start + cut.stop] for x in arrays] for cut in cuts]
        self.num_bytes = self.items * dtype.itemsize
        self._rounded = dtype in short
        self._fold_to = kernel("fold", "fold_to", arrays[0])
        self._plans: dict[Sequence[int], list[_Plan]] = {}

    def fold(self, op: Reduction, to: Sequence[int], peers: Peers) -> None:
        """Fold the arrays, and write the total to those of the ranks `to`, a range or a tuple."""
        if self._fold_to is not None and op.known:
            for parts in self.blocks:
                self._fold_to(op.name, parts, [parts[i] for i in to])
            return
        combine = op.combine if self._rounded else op.ufunc
        for steps, total, others in self._plans.get(to) or self._plan(to, peers):
            for x, y, out in steps:
                combine(x, y, out=out)
            for other in others:
                other[...] = total

    def _plan(self, to: Sequence[int], peers: Peers) -> "list[_Plan]":
        """What to do to each block; the same each time."""
        first, plans, spare = to[0], [], None
        if first and self.blocks and len(self.blocks[0]) > 2:
            spare = peers.spare(self.blocks[0][0])
        for parts in self.blocks:
            total = parts[first]
            steps = _chain(parts, total, total if spare is None else spare[: len(total)])
            plans.append((list(steps), total, [parts[i] for i in to if i != first]))
        self._plans[to] = plans
        return plans


_Plan: TypeAlias = tuple[list[tuple[Array, Array, Array]], Array, list[Array]]
"""Of one block: the steps of `_chain`, what holds the total after them, and what else it is to be written to."""


def led_slices(views: Views, peers: Peers, apart: bool = False) -> list[tuple[int, Slice]]:
    """The slices that this rank reduces, its own and those of others, each with its rank.

    They are always the same for these arrays, and kept with them.

    Args:
        apart: whether the slices of consecutive ranks stay separate; if not, they are joined, with the first's rank.
    """
    found: list[tuple[int, Slice]] | None = views.kept.get(("slices", apart))
    if found is None:
        led, cuts = peers.led(views[0]), slices(len(views[0]), len(views))
        spans = [(rank, rank) for rank in led] if apart else runs(led)
        found = [(first, Slice(views, slice(cuts[first].start, cuts[last].stop))) for first, last in spans]
        if all(len(part.blocks) <= _MOST_KEPT for _, part in found):
            views.kept["slices", apart] = found
    return found


def runs(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of consecutive ranks: (0, 1) and (3, 3) of 0, 1 and 3."""
    if len(ranks) == 1:
        return [(ranks[0], ranks[0])]
    firsts, lasts = ([rank for rank in ranks if rank + step not in ranks] for step in (-1, 1))
    return list(zip(firsts, lasts, strict=True))


def fold_in_place(views: Views, peers: Peers, op: Reduction, to: Sequence[int] | None) -> None:
    """Fold this rank's slice of all arrays, or those that it is to fold for others, and meet.

    Args:
        to: the ranks to whose arrays it is written, a range or a tuple; None for only the rank whose slice it is.
    """
    comm = peers.comm
    told = comm.recorder.on or current_meter() is not None
    for part, targets, moves in views.kept.get(("folds", to)) or _folds(views, peers, to):
        start_s = comm.clock() if told else 0.0
        part.fold(op, targets, peers)
        if told:
            peers.moved(start_s, *moves)
    peers.meet()


_Fold: TypeAlias = tuple[Slice, Sequence[int], tuple[int, ...]]
"""A slice that a rank folds, to whom it goes, and what moves for that, as `Peers.moved` takes it."""


def _folds(views: Views, peers: Peers, to: Sequence[int] | None) -> list[_Fold]:
    """What this rank folds; the same each time."""
    p, found = len(views), list[_Fold]()
    for rank, part in led_slices(views, peers, to is None):
        targets: Sequence[int] = (rank,) if to is None else to
        share = part.num_bytes
        far = (p - 1 + len(targets) - (peers.comm.rank in targets)) * share
        # Others write their sums to this rank.
        contention = max(0, views[0].nbytes - len(to) * share) if to is not None and peers.comm.rank in to else 0
        found.append((part, targets, (p * share, len(targets) * share, far, 0, (p - 1) * part.items, 0, contention)))
    if ("slices", to is None) in views.kept:  # so are the slices
        views.kept["folds", to] = found
    return found
