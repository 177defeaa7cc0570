"""Direct: the ranks of a node read and write each other's arrays where they lie, and send no messages.

    p   ranks            r    this rank           c2   slice, or chunk, 2 of p
    n   items            x1   rank 1's array      s    the sum of x0, x1, …, in the order of ranks

Three ways, and all ranks go the same:

    in place    the arrays lie in memory from `comm.empty`. Rank r sums slice r of all p arrays, block by block, and
                writes the sum to all of them; two meetings, 2n bytes a rank read and written: the least there can be.
    staged      the arrays lie anywhere. Each leaves a copy where all reach it, a room at a time: rooms stay in cache.
    one shot    the arrays are short. Each leaves a copy, and reads everybody's: one meeting.

On every way sums are folded in the order of ranks, so they are the same bits.

Source: Peng, Fang, Liu, Xie, Dai, Yang, Li, Wang 2023, Optimizing MPI Collectives on Shared Memory Multi-Cores, SC'23:
what a reduction in shared memory has to move.
"""

from collections.abc import Sequence

from simdist.arrays import Array, Reduction, partition, slices
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.direct_cost import Moves, fits_one_shot, is_short, on_one_node
from simdist.collectives.direct_fold import Slice, combiner, fold, fold_in_place
from simdist.collectives.direct_nodes import (
    all_reduce_over_nodes,
    all_reduce_phases,
    leaders_cost,
    reduce_over_nodes,
)
from simdist.collectives.registry import algorithm, find
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
    if is_short(n, p) if one_shot is None else one_shot and n <= ROOM_BYTES:
        _reduce_at_once(x, peers, op, to)
        return
    views = None if staged else peers.show(x)
    if views is not None:
        fold_in_place(views, peers, op, to)
    elif one_shot is None and fits_one_shot(n, p):
        _reduce_at_once(x, peers, op, to)
    else:
        _reduce_staged(x, peers, op, to)


def _reduce_at_once(x: Array, peers: Peers, op: Reduction, to: Sequence[int]) -> None:
    """Each of the ranks `to` folds what all have left."""
    comm, n, items = peers.comm, x.nbytes, len(x)
    p, start_s = comm.size, comm.clock()
    copies = peers.post(x)
    if comm.rank in to:
        fold(combiner(op, x.dtype), [copy[:items] for copy in copies], x, x)
        peers.moved(start_s, p * n, n, 2 * n, (p - 1) * items, n)
    else:
        peers.moved(start_s, 0, n, n, 0, n)


def _reduce_staged(x: Array, peers: Peers, op: Reduction, to: Sequence[int]) -> None:
    """Each leaves a copy of a part of x; then as in place; then the ranks `to` take their own copies back.

    The meeting at which the next parts are left is also the one at which the sums of these are written:

        post a    fold a    post b    take a    fold b    post c    take b    fold c    meet    take c
    """
    comm, itemsize = peers.comm, x.dtype.itemsize
    p, r, takes = comm.size, comm.rank, comm.rank in to
    parts = segments(len(x), itemsize, ROOM_BYTES)
    start_s, mine = comm.clock(), x[parts[0]]
    copies = peers.post(mine)
    for k in range(1, len(parts) + 1):
        part = Slice(copies, slices(len(mine), p)[r])
        part.fold(op, to, peers)
        items, share, taken = part.items, part.num_bytes, mine.nbytes if takes else 0
        written = mine.nbytes + len(to) * share
        peers.moved(start_s, p * share + taken, written, mine.nbytes + taken, (p - 1) * items, mine.nbytes)
        start_s, summed, sums = comm.clock(), mine, copies
        if k < len(parts):
            mine = x[parts[k]]
            copies = peers.post(mine)
        else:
            peers.meet()
        if takes:
            summed[...] = sums[r][: len(summed)]


def _reduce_moves(case: Case, to: Sequence[int], one_shot: bool | None, staged: bool) -> Moves:
    p, r, n = case.ranks, case.rank, case.num_bytes
    taken = n if r in to else 0
    if one_shot is None:
        one_shot = fits_one_shot(n, p) if staged else is_short(n, p)
    if one_shot and n <= ROOM_BYTES:
        return Moves(1, p * taken, n, n + taken, (p - 1) * taken)
    if not staged:
        share = case.chunk_bytes(r)
        return Moves(2, p * share, len(to) * share, 0, (p - 1) * share)
    parts = segments(n // case.itemsize, case.itemsize, ROOM_BYTES)
    share = sum(partition(s.stop - s.start, p).size(r) for s in parts) * case.itemsize
    return Moves(len(parts) + 1, p * share + taken, n + len(to) * share, n + taken, (p - 1) * share)


def _all_reduce_moves(case: Case, one_shot: bool | None = None, staged: bool = False) -> Moves:
    return _reduce_moves(case, range(case.ranks), one_shot, staged)


def _all_reduce_cost(case: Case, one_shot: bool | None = None, staged: bool = False) -> Cost:
    if on_one_node(case):
        return _all_reduce_moves(case, one_shot, staged).cost(case)
    return find("all_reduce", "hierarchical").cost(case, **all_reduce_phases(case.ranks % case.ranks_per_node == 0))


def _all_reduce_formula(case: Case, one_shot: bool | None = None, staged: bool = False) -> Formula:
    if on_one_node(case):
        return _all_reduce_moves(case, one_shot, staged).formula(case)
    return find("all_reduce", "hierarchical").formula(case, **all_reduce_phases(case.ranks % case.ranks_per_node == 0))


@algorithm("all_reduce", "direct", cost=_all_reduce_cost, formula=_all_reduce_formula, by_messages=False)
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

    Nobody else touches slice r of any array between the meetings, so nobody needs to be waited for. Rank r folds
    into x0 and copies from there, a block at a time.

    On several nodes it is the hierarchical all-reduce, direct inside each node.

    Args:
        x: shape (n,), contiguous, the same length and dtype on every rank; overwritten.
        one_shot: whether each rank sums all copies by itself; by default where arrays are short.
        staged: whether to copy arrays that need not be, unless they are short.

    Cost per rank: no messages; in place 2 meetings, n bytes read, n written; in one shot 1, pn read, n written;
    staged one for each room full and 1, 2n read, 2n written. n(p-1)/p reduced, in one shot n(p-1).
    """
    if comm.size == 1:
        return
    if comm.num_nodes > 1:
        all_reduce_over_nodes(x, comm, op)
        return
    _reduce_to(x, comm, op, range(comm.size), one_shot, staged)


def _one_rank(case: Case, one_shot: bool | None = None, staged: bool = False) -> Moves:
    return _reduce_moves(case, [case.root], one_shot, staged)


def _reduce_cost(case: Case, one_shot: bool | None = None, staged: bool = False) -> Cost:
    if on_one_node(case):
        return _one_rank(case, one_shot, staged).cost(case)
    return leaders_cost(case, "reduce")


def _reduce_formula(case: Case, one_shot: bool | None = None, staged: bool = False) -> Formula:
    if on_one_node(case):
        return _one_rank(case, one_shot, staged).formula(case)
    return find("reduce", "binomial").formula(case)


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
        reduce_over_nodes(x, comm, op, root)
        return
    _reduce_to(x, comm, op, [root], one_shot, staged)
