"""Ping-pong: measures messages between ranks and reductions in memory, the input of `calibrate`."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from simdist.arrays import reduction
from simdist.comm.communicator import Communicator

__all__ = ["Measurement", "ping_pong"]

_ROUNDS = 20  # of each size, after one for warm-up


class Measurement(NamedTuple):
    """Medians of the measured times.

    Attributes:
        messages: (bytes, seconds from send to receive) of each size.
        reductions: (bytes of one operand, seconds of x += y) of each size.
    """

    messages: list[tuple[int, float]]
    reductions: list[tuple[int, float]]


def ping_pong(comm: Communicator, sizes: Sequence[int]) -> Measurement:
    """Rank 0 sends to rank 1, which sends back, and likewise all pairs at once; a message takes half of that time.

    All pairs run at once because a collective keeps all ranks busy at once: so this measures the links as a collective
    uses them. With an odd number of ranks the last one has no partner.

    Args:
        sizes: bytes, the same on every rank.

    Returns:
        the times of this rank; no messages on a rank without a partner.
    """
    partner = comm.rank ^ 1
    messages, reductions = [], []
    for size in sizes:
        x = np.ones(size, np.uint8)
        comm.barrier()
        if partner < comm.size:
            messages.append((size, median([_round(comm, x, partner) for _ in range(1 + _ROUNDS)][1:]) / 2))
        comm.barrier()
        if size >= 8:
            reductions.append((size // 8 * 8, median([_fold(comm, size // 8) for _ in range(1 + _ROUNDS)][1:])))
    return Measurement(messages, reductions)


def _round(comm: Communicator, x: np.ndarray, partner: int) -> float:
    """The seconds of one message there and one back."""
    start_s = comm.clock()
    for sender in (0, 1):
        if comm.rank % 2 == sender:
            comm.send(x, partner)
        else:
            comm.recv(x, partner)
    return comm.clock() - start_s


def _fold(comm: Communicator, items: int) -> float:
    """The seconds of x += y, both of this many float64."""
    x, y, add = np.zeros(items), np.ones(items), reduction("sum")
    start_s = comm.clock()
    add(x, y)
    return comm.clock() - start_s
