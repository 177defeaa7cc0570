"""Direct reduce-scatter: each rank folds its own chunk of all arrays.

    p   ranks            r    this rank           c2   chunk 2 of p
    n   items            x1   rank 1's array

See `direct`.
"""

from simdist.arrays import Array, Reduction, slices
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.direct_cost import Moves, is_short, rooms
from simdist.collectives.direct_fold import fold_all, fold_in_place
from simdist.collectives.direct_nodes import all_reduce_cost, all_reduce_formula, all_reduce_over_nodes
from simdist.collectives.registry import algorithm
from simdist.collectives.segments import piece
from simdist.comm import Communicator
from simdist.comm.peers import Peers

__all__ = ["direct_reduce_scatter"]


def _moves(case: Case, staged: bool = False) -> Moves:
    p, n, share = case.ranks, case.num_bytes, case.chunk_bytes(case.rank)
    far = (p - 1) * share
    if is_short(n, p) or staged:
        rounds = rooms(case.chunks.largest, case.itemsize, p)
        return Moves(rounds, far, n - share, n + share, reduced_bytes=far, peer_bytes=far)
    return Moves(2, p * share, share, 0, reduced_bytes=far, peer_bytes=far)


def _cost(case: Case, staged: bool = False) -> Cost:
    return _moves(case, staged).cost(case) if case.on_one_node else all_reduce_cost(case, staged)


def _formula(case: Case, staged: bool = False) -> Formula:
    return _moves(case, staged).formula(case) if case.on_one_node else all_reduce_formula(case, staged)


@algorithm("reduce_scatter", "direct", cost=_cost, formula=_formula, by_messages=False)
def direct_reduce_scatter(x: Array, comm: Communicator, op: Reduction, staged: bool = False) -> None:
    """Leave in chunk r of x the reduction over all ranks; the other chunks are working space.

        rank            0                   1                   2                   3
        fold      x0 x1 x2 x3: c0     x0 x1 x2 x3: c1     x0 x1 x2 x3: c2     x0 x1 x2 x3: c3
        into      x0                  x1                  x2                  x3

    Staged, or where arrays are short, each rank leaves a copy of a piece of every chunk but its own, and folds the
    pieces of its own. On several nodes it is the all-reduce.

    Args:
        staged: whether to copy arrays even if they are in shared memory.

    Cost per rank: in place 2 meetings, n bytes read, n/p written; staged one meeting for each room full, n(p-1)/p
    read and as many written. n(p-1)/p reduced.
    """
    p = comm.size
    if p == 1:
        return
    if comm.num_nodes > 1:
        all_reduce_over_nodes(x, comm, op, staged)
        return
    peers = comm.peers()
    views = None if staged or is_short(x.nbytes, p) else peers.show(x)
    if views is None:
        _staged(x, peers, op)
        return
    fold_in_place(views, peers, op, None)


def _staged(x: Array, peers: Peers, op: Reduction) -> None:
    """Each rank leaves a piece of every chunk but its own, and folds all pieces of its own into x."""
    comm, itemsize = peers.comm, x.dtype.itemsize
    p, r = comm.size, comm.rank
    chunks = slices(len(x), p)
    rounds = rooms(chunks[0].stop, itemsize, p)
    for k in range(rounds):
        cuts = chunks if rounds == 1 else [piece(chunk, rounds, k) for chunk in chunks]
        lengths = [cut.stop - cut.start for cut in cuts]
        copies = peers.post(*(x[cut] for i, cut in enumerate(cuts) if i != r))
        start_s = comm.clock()
        mine, items, before = x[cuts[r]], lengths[r], sum(lengths[:r])
        arrays = [mine] * p
        for i, copy in enumerate(copies):
            if i != r:
                at = before - (lengths[i] if i < r else 0)  # rank i has left out its own piece
                arrays[i] = copy[at : at + items]
        fold_all(op, arrays, mine, peers.spare(mine))
        away, share, flops = (sum(lengths) - items) * itemsize, items * itemsize, (p - 1) * items
        far, private = (p - 1) * share, away + 2 * share
        peers.moved(start_s, far, away, far, private_bytes=private, flops=flops, posted_bytes=away)
