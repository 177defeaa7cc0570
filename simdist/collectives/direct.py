"""Direct: the ranks of a node read and write each other's arrays in shared memory, and send no messages.

    p   ranks            r    this rank           c2   slice, or chunk, 2 of p
    n   items            x1   rank 1's array      s    the sum of x0, x1, …, in the order of ranks

There are three ways, and all ranks use the same:

    in place    the arrays are in memory from `comm.empty`. Rank r sums slice r of all p arrays, block by block, and
                writes the sum to all of them. Two meetings; each rank reads n bytes and writes n, the minimum.
    staged      the arrays are anywhere. Each rank leaves a copy in shared memory, room by room: rooms stay in cache.
    one shot    the arrays are short. Each rank leaves a copy, and reads the copies of all: one meeting.

All ways fold in the order of ranks, so they give the same bits.

On GPUs the ways are the same, each a kernel or two. Where ranks have one each, rank r folds slice r, and one shot is
used for longer arrays, too. Where ranks share one, the first folds the slices of all by one kernel: see `Peers.led`.

Source: Peng, Fang, Liu, Xie, Dai, Yang, Li, Wang 2023, Optimizing MPI Collectives on Shared Memory Multi-Cores, SC'23:
what a reduction in shared memory has to move.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from simdist.arrays import Array, Reduction, partition, slices
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.direct_cost import Moves, fits_one_shot, is_short
from simdist.collectives.direct_fold import Slice, fold_all, fold_in_place, runs
from simdist.collectives.direct_nodes import (
    all_reduce_cost,
    all_reduce_formula,
    all_reduce_over_nodes,
    reduce_cost,
    reduce_formula,
    reduce_over_nodes,
)
from simdist.collectives.registry import algorithm
from simdist.collectives.segments import segments
from simdist.comm import Communicator
from simdist.comm.peers import ROOM_BYTES, Peers

__all__ = ["direct_all_reduce", "direct_reduce"]

# -- all-reduce and reduce ----------------------------------------------------------------------------


def _reduce_to(
    x: Array, comm: Communicator, op: Reduction, to: Sequence[int], one_shot: bool | None, staged: bool
) -> None:
    """Leave in x on the ranks `to` the reduction over all ranks, which live on one node."""
    peers, n, p = comm.peers(), x.nbytes, comm.size
    memory = peers.memory_of(x)
    if is_short(n, p, memory) if one_shot is None else one_shot and n <= ROOM_BYTES:
        _reduce_at_once(x, peers, op, to)
        return
    views = None if staged else peers.show(x)
    if views is not None:
        fold_in_place(views, peers, op, to)
    elif one_shot is None and fits_one_shot(n, p, memory):
        _reduce_at_once(x, peers, op, to)
    else:
        _reduce_staged(x, peers, op, to)


def _reduce_at_once(x: Array, peers: Peers, op: Reduction, to: Sequence[int]) -> None:
    """Each of the ranks `to` folds what all have left."""
    comm, n, items = peers.comm, x.nbytes, len(x)
    p, copies = comm.size, peers.post(x)
    start_s = comm.clock()  # waiting for the others is not part of the move
    if comm.rank in to:
        fold_all(op, [copy[:items] for copy in copies], x, x)
        flops = (p - 1) * items
        peers.moved(start_s, p * n, n, (p - 1) * n, private_bytes=2 * n, flops=flops, posted_bytes=n)
    else:
        peers.moved(start_s, 0, n, 0, private_bytes=n, posted_bytes=n)


def _reduce_staged(x: Array, peers: Peers, op: Reduction, to: Sequence[int]) -> None:
    """Each rank leaves a copy of a part of x; the copies are folded as in place; the ranks `to` take theirs back.

    A rank does not leave the slice that it alone folds, so it need not take that sum back. At the meeting at which the
    next parts are left, the sums of the last ones are complete:

        post a    fold a    post b    take a    fold b    post c    take b    fold c    meet    take c
    """
    comm, itemsize = peers.comm, x.dtype.itemsize
    p, r, takes = comm.size, comm.rank, comm.rank in to
    parts = segments(len(x), itemsize, ROOM_BYTES)

    def leave(part: slice) -> tuple[Array, Sequence[slice], Sequence[Array]]:
        mine = x[part]
        kept = _kept(mine, peers)
        return mine, kept, peers.post(*_left(mine, kept[r]))

    mine, kept, copies = leave(parts[0])
    start_s = comm.clock()
    for k in range(1, len(parts) + 1):
        items = _fold_left(mine, copies, kept, peers, op, to)
        n, own = mine.nbytes, (kept[r].stop - kept[r].start) * itemsize
        _, read, written, private, _, far, contention = _staged_moves(n, items * itemsize, own, p, len(to), takes)
        peers.moved(start_s, read, written, far, private, (p - 1) * items, n - own, contention)
        sums, (before, behind) = copies[r], _left(mine, kept[r])
        if k < len(parts):
            mine, kept, copies = leave(parts[k])
        else:
            peers.meet()
        start_s = comm.clock()
        if takes:
            before[...] = sums[: len(before)]
            behind[...] = sums[len(before) :][: len(behind)]


def _kept(x: Array, peers: Peers) -> Sequence[slice]:
    """Which slice of x each rank does not leave, because it alone folds it. Where ranks share a device, no slice."""
    p = peers.comm.size
    return slices(len(x), p) if peers.memory_of(x) != "device" else [slice(0, 0)] * p


def _left(x: Array, kept: slice) -> list[Array]:
    """What is before, and behind, the slice that is not left."""
    return [x[: kept.start], x[kept.stop :]]


def _fold_left(
    x: Array, copies: Sequence[Array], kept: Sequence[slice], peers: Peers, op: Reduction, to: Sequence[int]
) -> int:
    """Fold what all have left, and x where this rank has not; returns how many items of one array."""
    r, items, cuts = peers.comm.rank, 0, slices(len(x), len(copies))
    for first, last in runs(peers.led(x)):
        start, stop = cuts[first].start, cuts[last].stop
        arrays = []
        for copy, gap in zip(copies, kept, strict=True):
            missing = gap.stop - gap.start if gap.start < start else 0
            arrays.append(copy[start - missing : stop - missing])
        if kept[r] == slice(start, stop):
            arrays[r] = x[kept[r]]
        Slice(arrays, slice(0, stop - start)).fold(op, to, peers)
        items += stop - start
    return items


def _staged_moves(n: int, share: int, own: int, p: int, num_to: int, takes: bool) -> Moves:
    """One meeting's: n bytes of each array, of which this rank folds `share` and does not leave `own`."""
    taken, spared = (n, 2 * own) if takes else (0, own)
    read, written = p * share + taken - spared, n + num_to * share - spared
    far = (p - 1 + num_to - takes) * share
    contention = takes * max(0, n - num_to * share)  # others write to it what they have folded
    return Moves(1, read, written, n + taken, (p - 1) * share, far, contention)


def _reduce_moves(case: Case, to: Sequence[int], one_shot: bool | None, staged: bool) -> Moves:
    p, r, n, takes = case.ranks, case.rank, case.num_bytes, case.rank in to
    taken = n if takes else 0
    if one_shot is None:
        one_shot = fits_one_shot(n, p) if staged else is_short(n, p)
    if one_shot and n <= ROOM_BYTES:
        return Moves(1, p * taken, n, n + taken, reduced_bytes=(p - 1) * taken, peer_bytes=(p - 1) * taken)
    if not staged:
        share = case.chunk_bytes(r)
        far, contention = (p - 1 + len(to) - takes) * share, takes * max(0, n - len(to) * share)
        return Moves(2, p * share, len(to) * share, 0, (p - 1) * share, far, contention)
    parts = segments(case.num_items, case.itemsize, ROOM_BYTES)
    share = sum(partition(s.stop - s.start, p).size(r) for s in parts) * case.itemsize
    return _staged_moves(n, share, share, p, len(to), takes)._replace(meetings=len(parts) + 1)


def _all_reduce_cost(case: Case, one_shot: bool | None = None, staged: bool = False) -> Cost:
    if case.on_one_node:
        return _reduce_moves(case, range(case.ranks), one_shot, staged).cost(case)
    return all_reduce_cost(case, staged)


def _all_reduce_formula(case: Case, one_shot: bool | None = None, staged: bool = False) -> Formula:
    if case.on_one_node:
        return _reduce_moves(case, range(case.ranks), one_shot, staged).formula(case)
    return all_reduce_formula(case, staged)


def _prepare(x: Array, comm: Communicator, op: Reduction) -> Callable[[Array], None] | None:
    """See Algorithm; only on one node."""
    if comm.size == 1 or comm.num_nodes > 1:
        return None
    to = range(comm.size)
    return lambda x: _reduce_to(x, comm, op, to, None, False)


@algorithm(
    "all_reduce", "direct", cost=_all_reduce_cost, formula=_all_reduce_formula, by_messages=False, prepare=_prepare
)
def direct_all_reduce(
    x: Array, comm: Communicator, op: Reduction, one_shot: bool | None = None, staged: bool = False
) -> None:
    """Replace x by its reduction over all ranks.

    In place, on four ranks:

        rank            0                   1                   2                   3
        meet                         all arrays are complete
        fold      x0 x1 x2 x3: c0     x0 x1 x2 x3: c1     x0 x1 x2 x3: c2     x0 x1 x2 x3: c3
        write     c0 to all           c1 to all           c2 to all           c3 to all
        meet                         all sums are written

    Between the meetings only rank r touches slice r of any array, so no rank waits for another. Rank r folds into x0
    and copies from there, a block at a time.

    On several nodes it is the hierarchical all-reduce, direct inside each node.

    Args:
        x: shape (n,), contiguous, the same length and dtype on every rank; overwritten.
        one_shot: whether each rank of a single node sums all copies by itself, if they fit a room; by default where
            arrays are short.
        staged: whether to copy arrays even if they are in shared memory; short ones are copied anyway.

    Cost per rank: no messages; in place 2 meetings, n bytes read, n written; in one shot 1, pn read, n written;
    staged one for each room full and 1, 2n(p-1)/p read and as many written. n(p-1)/p reduced, in one shot n(p-1).
    """
    if comm.size == 1:
        return
    if comm.num_nodes > 1:
        all_reduce_over_nodes(x, comm, op, staged)
        return
    _reduce_to(x, comm, op, range(comm.size), one_shot, staged)


def _reduce_cost(case: Case, one_shot: bool | None = None, staged: bool = False) -> Cost:
    if case.on_one_node:
        return _reduce_moves(case, (case.root,), one_shot, staged).cost(case)
    return reduce_cost(case, staged)


def _reduce_formula(case: Case, one_shot: bool | None = None, staged: bool = False) -> Formula:
    if case.on_one_node:
        return _reduce_moves(replace(case, rank=case.root), (case.root,), one_shot, staged).formula(case)
    return reduce_formula(case, staged)


@algorithm("reduce", "direct", cost=_reduce_cost, formula=_reduce_formula, by_messages=False)
def direct_reduce(
    x: Array, comm: Communicator, op: Reduction, root: int, one_shot: bool | None = None, staged: bool = False
) -> None:
    """Leave in root's x the reduction over all ranks: as the all-reduce, but each slice is written to root alone.

    On several nodes: inside each node to its first rank, from these to the first of root's node by a binomial tree,
    and from there to root.

    Args:
        one_shot, staged: as of the all-reduce; in one shot root sums alone.

    Cost per rank, in place: 2 meetings, n bytes read, n/p written, n(p-1)/p reduced.
    """
    if comm.size == 1:
        return
    if comm.num_nodes > 1:
        reduce_over_nodes(x, comm, op, root, staged)
        return
    _reduce_to(x, comm, op, (root,), one_shot, staged)
