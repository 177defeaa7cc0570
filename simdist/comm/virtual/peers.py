"""Peers among virtual ranks: they show and post references, and a meeting takes one latency."""

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simdist.arrays import Array, charge, hold, kind_of, phantom
from simdist.arrays.kind import address, owner
from simdist.comm.peers import HEAD_BYTES, ROOM_BYTES, Peers, Views

if TYPE_CHECKING:
    from simdist.comm.virtual.communicator import VirtualCommunicator

__all__ = ["Memory", "VirtualPeers"]


class Memory:
    """The arrays of a run that came from `comm.empty`, with their calls."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[weakref.ref[Any], str]] = {}

    def add(self, x: Array, call: str) -> None:
        """Register that x comes from this call, which has the same name on all of its ranks."""
        key = id(x)
        self._calls[key] = weakref.ref(x, lambda _: self._calls.pop(key, None)), call

    def place(self, x: Array) -> tuple[str, int, int] | None:
        """The call whose array holds x, the offset of x there, and its bytes; None if x has other memory.

        All phantoms of one size have the same place.
        """
        if kind_of(x) == "phantom":
            return "anywhere", 0, x.nbytes
        root = owner(x)
        found = self._calls.get(id(root))
        return None if found is None else (found[1], address(x) - address(root), x.nbytes)


class VirtualPeers(Peers):
    """The ranks of a virtual communicator, all on one node.

    Args:
        comm: the communicator that collectives use.
        memory: of the run.
    """

    comm: "VirtualCommunicator"

    def __init__(self, comm: "VirtualCommunicator", memory: Memory) -> None:
        super().__init__(comm)
        self._memory = memory
        self._meetings = 0
        self._rooms = phantom(HEAD_BYTES + 2 * ROOM_BYTES, np.uint8)  # the memory that real ranks need
        hold("communication", self._rooms, "a collective")

    def meet(self) -> None:
        """See Peers."""
        self._come(None)

    def show(self, x: Array, ahead: bool = False) -> Views | None:
        """See Peers."""
        if self._ahead is not None and self._ahead[0] == self._meetings:
            (_, views), self._ahead = self._ahead, None
            return views
        place = self._memory.place(x)
        brought = self._come((place, x))
        if place is None or any(there != place for there, _ in brought):
            return None
        views = Views(y for _, y in brought)
        self._ahead = (self._meetings, views) if ahead else None
        return views

    def post(self, *parts: Array) -> Sequence[Array]:
        """See Peers. The copy is charged here, before the meeting, and not again in `moved`."""
        self.comm.check_shared("post", parts[0].dtype)
        copy = np.concatenate(parts) if len(parts) > 1 else parts[0].copy()
        charge(0, 2 * copy.nbytes)
        return self._come(copy)

    def _come(self, thing: Any) -> list[Any]:
        """What each rank brought; all leave one latency after the last has come."""
        comm = self.comm
        self._meetings += 1
        latency_s = comm.cluster.inside.latency_s if comm.size > 1 else 0.0
        return comm.group.meet("meeting", self._meetings, comm.rank, thing, comm.doing, latency_s)

    def _charge(self, flops: int, near_bytes: int, peer_bytes: int, posted_bytes: int, contention_bytes: int) -> None:
        """Advance the clock, without the posted bytes: `post` has charged them.

        If each device has its own memory, those of peers come over the link in the node, after what contends for it.
        """
        cluster = self.comm.cluster
        near_bytes -= 2 * posted_bytes
        if cluster.one_memory:
            near_bytes += peer_bytes
        else:
            self.comm.scheduler.running.clock_s += (peer_bytes + contention_bytes) / cluster.inside.bytes_per_s
        charge(flops, near_bytes)
