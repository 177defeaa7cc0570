"""The ring all-reduce, written out as a program: each rank talks only to its two neighbours.

mpirun -n 4 python -m simdist.examples.ring_all_reduce
"""

import numpy as np

import simdist as sd
from simdist.arrays import partition
from simdist.comm import Communicator

__all__ = ["main"]


def main(comm: Communicator) -> np.ndarray:
    """Sum 10**rank over all ranks: digit r of the result counts the contributions of rank r."""
    p, r = comm.size, comm.rank
    after, before = (r + 1) % p, (r - 1) % p
    x = np.full(8, 10**r, dtype=np.int64)
    chunk = partition(len(x), p)
    incoming = np.empty_like(x)

    # Reduce-scatter: chunk r starts at rank r + 1 and arrives at rank r complete after p - 1 steps.
    for step in range(1, p):
        give, take = chunk[(r - step) % p], chunk[(r - step - 1) % p]
        y = incoming[take]
        comm.sendrecv(x[give], after, y, before)
        x[take] += y

    # All-gather: the complete chunks go round the ring.
    for step in range(p - 1):
        give, take = chunk[(r - step) % p], chunk[(r - step - 1) % p]
        comm.sendrecv(x[give], after, x[take], before)
    return x


if __name__ == "__main__":
    world = sd.world()
    print(f"rank {world.rank} of {world.size}: {main(world)}", flush=True)
