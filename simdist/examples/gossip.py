"""Gossip, written out as a program: each rank averages with two neighbours, and all reach consensus.

mpirun -n 4 python -m simdist.examples.gossip
"""

import numpy as np

import simdist as sd
from simdist.comm import Communicator

__all__ = ["main"]


def main(comm: Communicator, steps: int = 200) -> float:
    """Find the point whose squared distances to all ranks' targets sum to the least: the mean of the targets.

    No rank learns another's target, and each talks only to its two neighbours. Returns this rank's final distance
    from that mean: with a learning rate that falls as 1/step, so does the distance.
    """
    p, r = comm.size, comm.rank
    after, before = (r + 1) % p, (r - 1) % p
    target = np.array([float(r), float(r * r)])
    x, theirs_after, theirs_before = target.copy(), np.empty(2), np.empty(2)

    for step in range(steps):
        comm.sendrecv(x, after, theirs_before, before)
        comm.sendrecv(x, before, theirs_after, after)
        gradient = x - target  # of ½‖x - target‖²
        x = (x + theirs_before + theirs_after) / 3 - gradient / (10 + step)

    mean = np.array([np.arange(p).mean(), (np.arange(p) ** 2).mean()])
    return float(np.abs(x - mean).max())


if __name__ == "__main__":
    world = sd.world()
    print(f"rank {world.rank} of {world.size}: {main(world):.3f} from the mean of all targets", flush=True)
