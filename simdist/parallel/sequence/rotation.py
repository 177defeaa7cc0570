"""Rotation: blocks that go round a ring, and sums about each block, to which every rank adds.

p   ranks        b0   the block that rank 0 owns        0+1   the sum of the parts of ranks 0 and 1

rank        0          1          2          3
step 0      b0         b1         b2         b3         each has its own block,
step 1      b3 ->      b0 ->      b1 ->      b2 ->      then that of the rank before it, and so on;
step 2      b2 ->      b3 ->      b0 ->      b1 ->      while it works, the next block is in transit
step 3      b1 ->      b2 ->      b3 ->      b0 ->

about b0    0 stays    1 ->       1+2 ->     1+2+3 ->   back to rank 0, which adds its part
"""

from collections.abc import Iterator

import numpy as np

from simdist.arrays import Array, charge, hold
from simdist.collectives.ring import Ring
from simdist.comm import Communicator, Request
from simdist.comm.request import complete

__all__ = ["rotation", "summed_rotation"]

_BLOCKS, _SUMS = 0, 1  # tags
_WAITING = "wait for a block"


def rotation(own: Array, comm: Communicator) -> Iterator[tuple[int, Array]]:
    """Each rank's block in turn, this rank's first, as (owner, block); a block is valid until the next iteration.

    Args:
        own: contiguous, of the same shape and dtype on every rank; it is overwritten.

    Cost per rank: p-1 messages of a block.
    """
    ring, last = Ring(comm.size, comm.rank), comm.size - 1
    block, free = own, np.empty_like(own) if last else own
    hold("communication", (block, free), "ring attention")
    for step in range(comm.size):
        requests: list[Request] = []
        if step < last:
            requests = [comm.irecv(free, ring.before, _BLOCKS), comm.isend(block, ring.after, _BLOCKS)]
        yield ring.back(step), block
        complete(requests, comm, _WAITING)
        block, free = free, block


def summed_rotation(own: Array, comm: Communicator, total: Array) -> Iterator[tuple[int, Array, Array]]:
    """`rotation`, with an array of zeros beside each block: to it this rank adds its part of a sum about the block.

    Args:
        own: as of `rotation`.
        total: zeros, of the shape of a block; in the end, the sum of all ranks' parts about this rank's block.

    Cost per rank: p-1 messages of a block, p-1 of sums.
    """
    ring = Ring(comm.size, comm.rank)
    arrived = np.empty_like(total)
    hold("communication", (total, arrived), "ring attention")
    send: list[Request] = []
    for step, (owner, block) in enumerate(rotation(own, comm)):
        if step == 0:
            yield owner, block, total
            continue
        sums = np.zeros_like(total)
        hold("communication", sums, "ring attention")
        receive = [comm.irecv(arrived, ring.before, _SUMS)] if step > 1 else []
        yield owner, block, sums
        if receive:
            complete(receive, comm, _WAITING)
            _add(sums, arrived)
        complete(send, comm, _WAITING)
        leaving = sums  # stays alive until it is sent, while the next one is computed
        send = [comm.isend(leaving, ring.after, _SUMS)]
    if send:
        complete([comm.irecv(arrived, ring.before, _SUMS)], comm, _WAITING)
        _add(total, arrived)
        complete(send, comm, _WAITING)


def _add(x: Array, y: Array) -> None:
    np.add(x, y, out=x)
    charge(x.size, 3 * x.nbytes)
