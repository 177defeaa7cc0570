"""Your own all-reduce as part of simdist: all verbs know what is registered before `main`.

python -m simdist.examples.own_algorithm verify all_reduce --algorithms swing --ranks 1 2 4 8
python -m simdist.examples.own_algorithm plot collective all_reduce swing --ranks 8
python -m simdist.examples.own_algorithm bench all_reduce --world virtual --cluster h100 --ranks 8
python -m simdist.examples.own_algorithm train --ranks 4 --algorithm swing

Swing is made for a torus of links, on which recursive halving, with the same formula, takes up to twice as long:

python -m simdist.examples.own_algorithm bench all_reduce --world virtual --cluster torus-8x8 --ranks 64 --sizes 1M 64M
"""

import sys
from collections.abc import Iterator
from math import inf

import numpy as np

from simdist.arrays import Array, Reduction, partition
from simdist.cli import main
from simdist.cluster import Cluster, Device, Link, add_preset, torus_route
from simdist.collectives import Case, Cost, Formula, algorithm
from simdist.comm import Communicator
from simdist.errors import ArgumentError

__all__ = ["swing"]


def _steps(p: int) -> int:
    """lg p."""
    if p & (p - 1):
        raise ArgumentError(f"swing on {p} ranks; needs a power of two")
    return p.bit_length() - 1


def _peer(rank: int, step: int, p: int) -> int:
    """A rank's partner in a step: alternately to either side, odd ranks opposite to even ones."""
    distance: int = (1 - (-2) ** (step + 1)) // 3
    return (rank + distance if rank % 2 == 0 else rank - distance) % p


def _reached(rank: int, step: int, p: int) -> list[int]:
    """The ranks that a rank reaches from this step on, through others: all from step 0, only itself after the last."""
    if step == _steps(p):
        return [rank]
    return sorted(_reached(rank, step + 1, p) + _reached(_peer(rank, step, p), step + 1, p))


def _cost(case: Case) -> Cost:
    p, r, steps = case.ranks, case.rank, _steps(case.ranks)
    kept = [sum(map(case.chunk_bytes, _reached(r, step + 1, p))) for step in range(steps)]
    given = [sum(map(case.chunk_bytes, _reached(_peer(r, step, p), step + 1, p))) for step in range(steps)]
    return Cost(2 * steps, 2 * steps, sent_bytes=sum(given) + sum(kept), reduced_bytes=sum(kept))


def _formula(case: Case) -> Formula:
    p, n = case.ranks, case.num_bytes
    share = n * (p - 1) / p
    return Formula(inf, inf) if p & (p - 1) else Formula(2 * _steps(p), 2 * share, share)


@algorithm("all_reduce", "swing", cost=_cost, formula=_formula)
def swing(x: Array, comm: Communicator, op: Reduction) -> None:
    """Replace x by its reduction over all ranks: halved in steps, each with another rank, then doubled again.

        rank        0  1  2  3  4  5  6  7        distance of step s: 1, -1, 3, -5, 11, … = (1 - (-2)**(s+1)) / 3, whose
        step 0      0--1  2--3  4--5  6--7        sign swings; even ranks go that way, odd ones the other
        step 1      --0  1--2  3--4  5--6  7--
        step 2      0--3  1--6  2--5  4--7

    In each step a rank sends the chunks of the ranks that its partner will reach, and reduces those of the ranks that
    it will reach itself. It is recursive halving with partners that are nearer on a ring or torus of links.
    Every chunk is reduced on its way to one rank, so all ranks get the same bits.

    Cost per rank: 2 lg p messages, 2n(p-1)/p bytes sent, n(p-1)/p reduced.

    Source: De Sensi, Bonato, Saam, Hoefler 2024, NSDI, arXiv 2401.09356: Swing, the bandwidth-optimal version.
    """
    p, r = comm.size, comm.rank
    chunks = partition(len(x), p)

    def swap(peer: int, give: list[int], take: list[int]) -> Iterator[tuple[Array, Array]]:
        """Exchange chunks with a peer: yields each chunk to take, and what was received for it."""
        incoming = np.empty_like(x, shape=(sum(chunks.size(i) for i in take),))
        comm.sendrecv(np.concatenate([x[chunks[i]] for i in give]), peer, incoming, peer)
        start = 0
        for i in take:
            end = start + chunks.size(i)
            yield x[chunks[i]], incoming[start:end]
            start = end

    steps = []
    for s in range(_steps(p)):
        peer = _peer(r, s, p)
        steps.append((peer, _reached(r, s + 1, p), _reached(peer, s + 1, p)))
    for peer, mine, theirs in steps:
        for chunk, received in swap(peer, theirs, mine):
            op.fold(chunk, received)
    for peer, mine, theirs in reversed(steps):
        for chunk, received in swap(peer, mine, theirs):
            chunk[...] = received


_LINK = Link(1e-6, 50e9)
_DEVICE = Device("host", flops_per_s=1e12, memory_bytes_per_s=1e12, memory_bytes=64e9)
add_preset(Cluster("torus-8x8", _DEVICE, _LINK, _LINK, devices_per_node=1, route=torus_route(8, 8)))

if __name__ == "__main__":
    sys.exit(main())
