"""Ping-pong: measures messages between ranks and reductions in memory, the input of `calibrated`."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from simdist.arrays import reduction
from simdist.comm.communicator import Communicator
from simdist.comm.placement import Placement

__all__ = ["Measurement", "partners", "ping_pong"]

_ROUNDS = 20  # of each size, after one for warm-up
_BEYOND_CACHES = 1 << 27  # bytes of a node's ranks together that leave nothing else in caches


class Measurement(NamedTuple):
    """Medians of the measured times.

    Attributes:
        inside: (bytes, seconds from send to receive) of each size, to a rank of the same node.
        reductions: (bytes of one operand, seconds of x += y) of each size.
        between: as `inside`, to a rank of another node.
    """

    inside: list[tuple[int, float]]
    reductions: list[tuple[int, float]]
    between: list[tuple[int, float]]


def ping_pong(comm: Communicator, sizes: Sequence[int], cold: bool = False) -> Measurement:
    """One rank of a pair sends to the other, which sends back; a message takes half of that time.

        node 0     node 1
        0 - 1      4 - 5        first pairs inside the nodes, all at once
        2 - 3      6

        0 -------- 4            then pairs of the ranks at the same place of two nodes
        1 -------- 5
        2 -------- 6
        3

    All pairs run at once because a collective keeps all ranks busy at once: so this measures the links as a collective
    uses them.

    Args:
        sizes: bytes, the same on every rank.
        cold: whether reductions find their arrays in memory, as those of gradients do after a backward; if not, in
            caches, if they fit.

    Returns:
        the times of this rank; those of messages are empty on a rank without a partner.
    """
    measured = inside, reductions, between = Measurement([], [], [])
    least = _BEYOND_CACHES // len(comm.nodes.neighbours(comm.rank)) if cold else 0
    memory = np.ones(max(2 * max(sizes, default=0), least) // 8)
    for size in sizes:
        x = np.ones(size, np.uint8)
        for found, partner in zip((inside, between), partners(comm.nodes, comm.rank), strict=True):
            comm.barrier()
            if partner is not None:
                found.append((size, median([_round(comm, x, partner) for _ in range(1 + _ROUNDS)][1:]) / 2))
        comm.barrier()
        if size >= 8:
            items = size // 8
            reductions.append((8 * items, median(_folds(comm, memory if cold else memory[: 2 * items], items))))
    return measured


def partners(nodes: Placement, rank: int) -> tuple[int | None, int | None]:
    """The partner of a rank on its own node, and the one on another node; None where there is none."""
    own, every = nodes.neighbours(rank), list(nodes.members.values())
    place, node = own.index(rank), every.index(own)
    other = every[node ^ 1] if node ^ 1 < len(every) else []
    return _at(own, place ^ 1), _at(other, place)


def _at(ranks: Sequence[int], i: int) -> int | None:
    return ranks[i] if i < len(ranks) else None


def _round(comm: Communicator, x: np.ndarray, partner: int) -> float:
    """The seconds of one message there and one back."""
    start_s = comm.clock()
    for first in (True, False):
        if (comm.rank < partner) is first:
            comm.send(x, partner)
        else:
            comm.recv(x, partner)
    return comm.clock() - start_s


def _folds(comm: Communicator, memory: np.ndarray, items: int) -> list[float]:
    """The seconds of x += y, both of this many float64, each time elsewhere in memory if it is longer."""
    add, taken = reduction("sum"), []
    for i in range(1 + _ROUNDS):
        first = i * max(2 * items, len(memory) // _ROUNDS) % (len(memory) - 2 * items + 1)
        x, y = memory[first : first + items], memory[first + items : first + 2 * items]
        start_s = comm.clock()
        add(x, y)
        taken.append(comm.clock() - start_s)
    return taken[1:]
