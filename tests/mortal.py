"""Virtual ranks that die, told of as Open MPI tells real ones: by PeerLost, where it lets the rest of a job go on."""

from math import inf

from simdist.comm import ANY
from simdist.errors import PeerLost

__all__ = ["mortal"]

_MOST_TICKS = 100_000


def mortal(comm, deaths, tick_s):
    """Let the calls of this communicator fail because of ranks that die; returns the communicator.

    Who waits for ANY gets PeerLost until it has asked who is lost, and who sends to a dead rank gets it at once. The
    dead themselves make no calls but `split(None)`, which the others' `survivors` needs here.

    Args:
        comm: a virtual one.
        deaths: when each rank dies, by its number in the job; shared by all ranks, which add to it.
        tick_s: within which time a rank that waits hears of a death.
    """
    known = set()

    def dead():
        return {rank for rank, number in enumerate(comm.ranks) if deaths.get(number, inf) <= comm.clock()}

    def lost():
        known.update(dead())
        return sorted(known)

    def probe(tag=ANY, until_s=0.0):
        for _ in range(_MOST_TICKS):
            if type(comm).probe(comm, tag, min(until_s, comm.clock() + tick_s)):
                return True
            if dead() - known:
                raise PeerLost(f"a wait on rank {comm.rank}")
            if comm.clock() >= until_s:
                return False
        raise AssertionError(f"nothing comes to rank {comm.rank}")

    def recv(x, src=ANY, tag=ANY):
        if src == ANY:
            probe(tag, inf)
        return type(comm).recv(comm, x, src, tag)

    def isend(x, dst, tag=0):
        if dst in dead():
            raise PeerLost(f"a message to rank {dst}")
        return type(comm).isend(comm, x, dst, tag)

    def survivors():
        return mortal(comm.split(0, comm.rank), deaths, tick_s) if dead() else comm

    comm.survive, comm.survivors = lambda: True, survivors
    comm.lost, comm.probe, comm.recv, comm.isend = lost, probe, recv, isend
    return comm
