"""Direct, where nothing is reduced: each rank reads what it needs in place, or writes its share to the others.

p   ranks            root   the rank that has it           r   this rank
n   items            c1     chunk 1, of rank 1             ab  rank a's part for rank b
"""

from collections.abc import Sequence
from dataclasses import replace

from simdist.arrays import Array, Chunks
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.direct_cost import Moves, is_short, rooms
from simdist.collectives.direct_fold import copy_to, led_slices
from simdist.collectives.direct_nodes import (
    all_gather_cost,
    all_gather_formula,
    all_gather_over_nodes,
    broadcast_cost,
    broadcast_formula,
    broadcast_over_nodes,
)
from simdist.collectives.registry import algorithm, find
from simdist.collectives.segments import piece, segments
from simdist.comm import Communicator
from simdist.comm.peers import ROOM_BYTES, Peers

__all__ = ["direct_all_gather", "direct_all_to_all", "direct_broadcast"]


# -- broadcast ----------------------------------------------------------------------------------------


def _broadcast_moves(case: Case, staged: bool = False) -> Moves:
    n, root = case.num_bytes, case.rank == case.root
    if staged or is_short(n, case.ranks):
        meetings = len(segments(case.num_items, case.itemsize, ROOM_BYTES))
        if root:
            return Moves(meetings, 0, n, n)
        return Moves(meetings, n, 0, n, peer_bytes=n, contention_bytes=(case.ranks - 2) * n)
    away = (case.ranks - 1) * (share := case.chunk_bytes(case.rank))
    return Moves(2, share, away, 0, peer_bytes=away, contention_bytes=root * (n - share))


def _broadcast_cost(case: Case, staged: bool = False) -> Cost:
    return _broadcast_moves(case, staged).cost(case) if case.on_one_node else broadcast_cost(case, staged)


def _broadcast_formula(case: Case, staged: bool = False) -> Formula:
    if not case.on_one_node:
        return broadcast_formula(case, staged)
    n, p = case.num_bytes, case.ranks
    if not (staged or is_short(n, p)):
        return _broadcast_moves(replace(case, rank=case.root), staged).formula(case)
    # Root leaves one part while the others take the last: 2n bytes each, and one part more until all have the last.
    other = _broadcast_moves(replace(case, rank=(case.root + 1) % p), staged)
    return other._replace(private_bytes=n + 2 * n // other.meetings).formula(case)


@algorithm("broadcast", "direct", cost=_broadcast_cost, formula=_broadcast_formula, by_messages=False)
def direct_broadcast(x: Array, comm: Communicator, root: int, staged: bool = False) -> None:
    """Replace x by root's: each rank writes a slice of it to all others.

        rank        0             1             2             3
        meet                 root's array, x0, is complete
        read      x0: c0        x0: c1        x0: c2        x0: c3
        write     x1 x2 x3      x1 x2 x3      x1 x2 x3      x1 x2 x3
        meet                 all slices are written

    So root's array is read once, not by every rank, and no rank is idle.

    Staged, root leaves a copy, a room at a time; it fills the next room while the others empty the last.
    On several nodes: inside root's node, from its first rank to those of the others by a binomial tree, inside those.

    Args:
        staged: whether to copy arrays even if they are in shared memory.

    Cost: no messages; in place 2 meetings, n/p bytes read and n(p-1)/p written; staged one meeting for each
    room full, root writes n and the others read n.
    """
    if comm.size == 1:
        return
    if comm.num_nodes > 1:
        broadcast_over_nodes(x, comm, root, staged)
        return
    peers = comm.peers()
    views = None if staged or is_short(x.nbytes, comm.size) else peers.show(x)
    if views is None:
        _broadcast_staged(x, peers, root)
        return
    for _, mine in led_slices(views, peers):
        start_s = comm.clock()
        for blocks in mine.blocks:
            copy_to(blocks[root], blocks[:root] + blocks[root + 1 :])
        away = (comm.size - 1) * mine.num_bytes
        contention = x.nbytes - mine.num_bytes if comm.rank == root else 0  # the others read theirs
        # Root reads its own, and others write their own.
        peers.moved(start_s, mine.num_bytes, away, away, contention_bytes=contention)
    peers.meet()


def _broadcast_staged(x: Array, peers: Peers, root: int) -> None:
    comm = peers.comm
    for segment in segments(len(x), x.dtype.itemsize, ROOM_BYTES):
        mine = x[segment]
        copies = peers.post(mine if comm.rank == root else x[:0])
        start_s = comm.clock()
        if comm.rank == root:
            peers.moved(start_s, 0, mine.nbytes, 0, private_bytes=mine.nbytes, posted_bytes=mine.nbytes)
        else:
            mine[...] = copies[root][: len(mine)]
            contention = (comm.size - 2) * mine.nbytes  # all others read it, too
            peers.moved(start_s, mine.nbytes, 0, mine.nbytes, private_bytes=mine.nbytes, contention_bytes=contention)


# -- all-gather ---------------------------------------------------------------------------------------


def _gather_moves(case: Case, staged: bool = False) -> Moves:
    n, own = case.num_bytes, case.chunk_bytes(case.rank)
    if staged or is_short(n, case.ranks):
        return Moves(rooms(case.chunks.largest, case.itemsize), n - own, own, n, peer_bytes=n - own)
    return Moves(2, n - own, n - own, 0, peer_bytes=n - own)


def _gather_cost(case: Case, staged: bool = False) -> Cost:
    return _gather_moves(case, staged).cost(case) if case.on_one_node else all_gather_cost(case, staged)


def _gather_formula(case: Case, staged: bool = False) -> Formula:
    return _gather_moves(case, staged).formula(case) if case.on_one_node else all_gather_formula(case, staged)


@algorithm("all_gather", "direct", cost=_gather_cost, formula=_gather_formula, by_messages=False)
def direct_all_gather(x: Array, comm: Communicator, chunks: Chunks, staged: bool = False) -> None:
    """Fill x, of which each rank holds its own chunk, with the chunks of all.

        rank        0             1             2             3
        meet        all chunks are there
        read      c1 c2 c3      c0 c2 c3      c0 c1 c3      c0 c1 c2        each from the array of its owner
        meet        all have read them

    Staged, each leaves a copy of a piece of its chunk and reads the others'.
    On several nodes: inside each node, between their first ranks round a ring, inside again.

    Args:
        staged: whether to copy arrays even if they are in shared memory.

    Cost per rank: no messages; in place 2 meetings, n(p-1)/p bytes read and as many written; staged one meeting for
    each room full, n(p-1)/p read and n/p written.
    """
    p, r, n = comm.size, comm.rank, x.nbytes
    if p == 1:
        return
    if comm.num_nodes > 1:
        all_gather_over_nodes(x, comm, chunks, staged)
        return
    peers = comm.peers()
    views = None if staged or is_short(n, p) else peers.show(x)
    if views is None:
        _gather_staged(x, peers, chunks)
        return
    start_s, led = comm.clock(), peers.led(x)
    read = written = 0
    for i in [(r + k) % p for k in range(p)]:  # each starts with a different one, so that not all read from one
        chunk, outs = views[i][chunks[i]], [views[rank][chunks[i]] for rank in led if rank != i]
        copy_to(chunk, outs)
        read += chunk.nbytes if outs else 0
        written += chunk.nbytes * len(outs)
    peers.moved(start_s, read, written, read)
    peers.meet()


def _gather_staged(x: Array, peers: Peers, chunks: Chunks) -> None:
    comm, itemsize = peers.comm, x.dtype.itemsize
    p, r = comm.size, comm.rank
    every = [chunks[i] for i in range(p)]
    rounds = rooms(max(chunk.stop - chunk.start for chunk in every), itemsize)
    for k in range(rounds):
        cuts = every if rounds == 1 else [piece(chunk, rounds, k) for chunk in every]
        mine = x[cuts[r]]
        copies, taken, start_s = peers.post(mine), 0, comm.clock()
        for i, cut in enumerate(cuts):
            if i != r:
                items = cut.stop - cut.start
                x[cut] = copies[i][:items]
                taken += items
        taken *= itemsize
        private = mine.nbytes + taken
        peers.moved(start_s, taken, mine.nbytes, taken, private_bytes=private, posted_bytes=mine.nbytes)


# -- all-to-all ---------------------------------------------------------------------------------------


def _exchange_moves(case: Case, staged: bool = False) -> Moves:
    n, row = case.num_bytes, case.chunk_bytes(case.rank)
    away = n - row
    if staged or is_short(n, case.ranks):
        rounds = rooms(row // case.itemsize, case.itemsize, case.ranks)
        return Moves(rounds, away, away, 2 * n, peer_bytes=away)
    return Moves(2, away, 0, away + 2 * row, peer_bytes=away)


def _exchange_cost(case: Case, staged: bool = False) -> Cost:
    pairwise = find("all_to_all", "pairwise").cost
    return _exchange_moves(case, staged).cost(case) if case.on_one_node else pairwise(case)


def _exchange_formula(case: Case, staged: bool = False) -> Formula:
    pairwise = find("all_to_all", "pairwise").formula
    return _exchange_moves(case, staged).formula(case) if case.on_one_node else pairwise(case)


@algorithm("all_to_all", "direct", cost=_exchange_cost, formula=_exchange_formula, by_messages=False)
def direct_all_to_all(x: Array, y: Array, comm: Communicator, staged: bool = False) -> None:
    """Fill row i of y with row r of rank i's x.

        rank        0             1             2             3
        meet        all rows are there
        read      10 20 30      01 21 31      02 12 32      03 13 23
        meet        all have read them

    Staged, each leaves a copy of a piece of every row but its own. On several nodes it is the pairwise exchange.

    Args:
        x, y: shape (p, m), contiguous.
        staged: whether to copy x even if it is in shared memory.

    Cost per rank: no messages; in place 2 meetings, n(p-1)/p bytes read; staged one meeting for each room full,
    n(p-1)/p read and as many written.
    """
    p, r = comm.size, comm.rank
    if comm.num_nodes > 1:
        find("all_to_all", "pairwise").run(x, y, comm)
        return
    y[r] = x[r]
    if p == 1:
        return
    peers, row = comm.peers(), x[r].nbytes
    flat = x.reshape(-1)
    views = None if staged or is_short(flat.nbytes, p) else peers.show(flat)
    if views is None:
        _exchange_staged(x, y, peers)
        return
    start_s, m = comm.clock(), x.shape[1]
    for i in [(r + k) % p for k in range(1, p)]:  # each starts with a different one, so that not all read from one
        y[i] = views[i][r * m : (r + 1) * m]
    away = (p - 1) * row
    peers.moved(start_s, away, 0, away, private_bytes=away + 2 * row)
    peers.meet()


def _exchange_staged(x: Array, y: Array, peers: Peers) -> None:
    comm = peers.comm
    p, r, m = comm.size, comm.rank, x.shape[1]
    rounds, row = rooms(m, x.dtype.itemsize, p), slice(0, m)
    others: Sequence[int] = [i for i in range(p) if i != r]
    for k in range(rounds):
        cut = piece(row, rounds, k)
        items = cut.stop - cut.start
        copies = peers.post(*(x[i, cut] for i in others))
        start_s = comm.clock()
        for i in others:
            at = (r - (r > i)) * items  # rank i has left out its own row
            y[i, cut] = copies[i][at : at + items]
        away, own = (p - 1) * items * x.dtype.itemsize, items * x.dtype.itemsize
        peers.moved(start_s, away, away, away, private_bytes=2 * (away + own), posted_bytes=away)
