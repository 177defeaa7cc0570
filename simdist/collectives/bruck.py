"""Bruck: ceil(lg p) rounds for every p, a power of two or not, by a rotated view of the ranks.

    p   ranks         r   this rank         d   the distance of a round: 1, 2, 4, … below p
    n   items         Each rank counts from itself: place i of its buffer belongs to rank r + i, round the ring.

So all ranks do the same, and none is left over. The price is a rotation of the buffer, at the beginning or the end.

Source: Bruck, Ho, Kipnis, Upfal, Weathersby 1997, IEEE Trans. Parallel Distrib. Syst. 8(11), 1143-1156.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from simdist.arrays import Array, Chunks
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.registry import algorithm
from simdist.collectives.rounds import by_rounds, distances, shift
from simdist.comm import Communicator
from simdist.errors import require_whole

__all__ = ["bruck_all_gather", "bruck_all_to_all"]


# -- all-gather ---------------------------------------------------------------------------------------


def _end(chunks: Chunks, rank: int, m: int) -> int:
    """Where the run of the first m chunks ends, counted from this rank's own on, round the ring; 0 <= m <= p."""
    p = len(chunks)
    turns, last = divmod(rank + m, p)
    items: int = turns * chunks[p - 1].stop + chunks[last].start - chunks[rank].start
    return items


def _all_gather_cost(case: Case) -> Cost:
    p = case.ranks
    sent = [_end(case.chunks, case.rank, min(d, p - d)) * case.itemsize for d in distances(p)]
    return Cost(steps=len(sent), messages=len(sent), sent_bytes=sum(sent))


def _all_gather_formula(case: Case) -> Formula:
    p, n = case.ranks, case.num_bytes
    return by_rounds(case, ((shift(case, d), Formula(1, n * min(d, p - d) / p)) for d in distances(p)))


@algorithm("all_gather", "bruck", cost=_all_gather_cost, formula=_all_gather_formula)
def bruck_all_gather(x: Array, comm: Communicator, chunks: Chunks) -> None:
    """Fill x, of which each rank holds its own chunk, with the chunks of all.

    A rank sends what it has to the rank d before it and appends what the rank d after it has. On five ranks:

        rank        0          1          2          3          4
        starts    0          1          2          3          4
        d = 1     0 1        1 2        2 3        3 4        4 0
        d = 2     0 1 2 3    1 2 3 4    2 3 4 0    3 4 0 1    4 0 1 2
        d = 4     0 1 2 3 4  1 2 3 4 0  2 3 4 0 1  3 4 0 1 2  4 0 1 2 3     the last round sends only what is missing
        rotated   0 1 2 3 4  0 1 2 3 4  0 1 2 3 4  0 1 2 3 4  0 1 2 3 4

    Cost per rank: ceil(lg p) messages, n(p-1)/p bytes sent.
    """
    p, r = comm.size, comm.rank
    end, own = partial(_end, chunks, r), chunks[r]
    y = scratch(x)
    y[: end(1)] = x[own]
    for d in distances(p):
        m = min(d, p - d)
        comm.sendrecv(y[: end(m)], (r - d) % p, y[end(d) : end(d + m)], (r + d) % p)
    tail = len(x) - own.start
    x[own.start :] = y[:tail]
    x[: own.start] = y[tail:]


# -- all-to-all ---------------------------------------------------------------------------------------


class _Round(NamedTuple):
    """Rows at places whose digit of value d, counting in the radix, is j travel j d ranks on.

    Attributes:
        hop: j d.
        runs: these places, in runs of d. Each as two slices: where it lies when the runs are packed together, and
            where it lies among all places.
        rows: how many they are.
    """

    hop: int
    runs: list[tuple[slice, slice]]
    rows: int


def _rounds(p: int, radix: int) -> Iterator[_Round]:
    """One for each digit of the numbers below p and each value of it above 0."""
    require_whole("radix", radix, 2)
    d = 1
    while d < p:
        for hop in range(d, min(radix * d, p), d):
            starts = range(hop, p, radix * d)
            runs = [(slice(d * k, d * k + min(d, p - i)), slice(i, min(i + d, p))) for k, i in enumerate(starts)]
            yield _Round(hop, runs, runs[-1][0].stop)
        d *= radix


def _all_to_all_cost(case: Case, radix: int = 2) -> Cost:
    rows = [each.rows for each in _rounds(case.ranks, radix)]
    return Cost(len(rows), len(rows), sum(rows) * (case.num_bytes // case.ranks))


def _all_to_all_formula(case: Case, radix: int = 2) -> Formula:
    row_bytes = case.num_bytes / case.ranks
    rounds = _rounds(case.ranks, radix)
    return by_rounds(case, ((shift(case, each.hop), Formula(1, each.rows * row_bytes)) for each in rounds))


@algorithm("all_to_all", "bruck", cost=_all_to_all_cost, formula=_all_to_all_formula)
def bruck_all_to_all(x: Array, y: Array, comm: Communicator, radix: int = 2) -> None:
    """Fill row i of y with row r of rank i's x: rows hop towards their rank, bit by bit of how far they have to go.

    The row at place i has to travel i ranks on. In the round of distance d those travel d whose i has that
    bit, all together as one message. On four ranks, 12 meaning rank 1's row for rank 2:

        rank        0            1            2            3
        rotated   00 01 02 03  11 12 13 10  22 23 20 21  33 30 31 32     place i is for rank r + i
        d = 1        ^^    ^^  -> r + 1
                  00 30 02 32  11 01 13 03  22 12 20 10  33 23 31 21
        d = 2           ^^ ^^  -> r + 2
                  00 30 20 10  11 01 31 21  22 12 02 32  33 23 13 03     place i is from rank r - i
        rotated   00 10 20 30  01 11 21 31  02 12 22 32  03 13 23 33

    Few rounds, but a row travels once for each digit that is not 0; in a larger radix more rounds, and fewer bytes.

    Args:
        x, y: shape (p, m), contiguous.
        radix: q, at least 2; with q = 4, rows travel 1, 2, 3, then 4, 8, 12, then 16, … ranks.

    Cost per rank: ceil(lg p) messages, n/2 bytes each where p is a power of two; otherwise at most n/2 each. Where p is
    a power of q, (q-1) log_q p messages of n/q bytes.

    Raises:
        ArgumentError: radix is no whole number of at least 2; on every rank.
    """
    p, r = comm.size, comm.rank
    z = scratch(x)
    z[: p - r] = x[r:]
    z[p - r :] = x[:r]
    for hop, runs, rows in _rounds(p, radix):
        give = scratch(x, (rows, *x.shape[1:]))
        take = scratch(give)
        for packed, places in runs:
            give[packed] = z[places]
        comm.sendrecv(give, (r + hop) % p, take, (r - hop) % p)
        for packed, places in runs:
            z[places] = take[packed]
    y[r::-1] = z[: r + 1]
    y[:r:-1] = z[r + 1 :]
