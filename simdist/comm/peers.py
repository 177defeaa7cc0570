"""Peers: the ranks of one node as they meet in its memory, without messages.

    meet    all have come:   what each wrote before can be read after it
    show    a meeting at which each shows an array of its own: the others read and write it where it lies
    post    a meeting at which each leaves a copy where all can read and write it

Each rank has two rooms for what it posts, and uses them in turn. What others have posted is to be used before one
comes to the next meeting; one's own copy stays until one posts for the second time after it.

         post a      post b      post c
    r    room 0      room 1      room 0       room 0 is written again when all have come to the meeting of b,
         |           |           |            and so have done with a
         meet        meet        meet
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simdist.arrays import Array, charge

if TYPE_CHECKING:
    from simdist.comm.communicator import Communicator

__all__ = ["ROOM_BYTES", "Peers"]

ROOM_BYTES = 1 << 20
"""How much can be posted at once: what all ranks of a small node post fits a last-level cache."""


class Peers(ABC):
    """All ranks of a communicator on one node. Each of them must make the same calls, in the same order.

    Args:
        comm: the communicator that collectives talk on.
    """

    def __init__(self, comm: "Communicator") -> None:
        self.comm = comm

    @abstractmethod
    def meet(self) -> None:
        """Return when all have come; what any of them wrote to memory in common before that can be read now."""

    @abstractmethod
    def show(self, x: Array) -> Sequence[Array] | None:
        """Meet, and show x.

        Returns:
            every rank's x, by rank, to be read and written, if all of them lie at the same place of memory from
            `comm.empty`; else None, on all ranks.
        """

    @abstractmethod
    def post(self, *parts: Array) -> Sequence[Array]:
        """Meet, and leave a copy of these flat arrays of one dtype, one after the other.

        Args:
            parts: ROOM_BYTES at most, all together; at least one, which may be empty.

        Returns:
            by rank what each has left, to be read and written; what lies behind a rank's last item is undefined.
        """

    def moved(
        self,
        start_s: float,
        read_bytes: int,
        written_bytes: int,
        private_bytes: int = 0,
        flops: int = 0,
        posted_bytes: int = 0,
    ) -> None:
        """Record and charge what this rank has done since start_s.

        Args:
            read_bytes, written_bytes: from and to what was shown or posted, its own included.
            private_bytes: read from and written to other memory.
            flops: operations of a reduction.
            posted_bytes: how much of what was written was posted, for which as much was read from other memory.
        """
        num_bytes = read_bytes + written_bytes
        self._charge(flops, num_bytes, private_bytes, posted_bytes)
        comm = self.comm
        recorder = comm.recorder
        if recorder.on:
            end_s, detail = comm.clock(), f"{read_bytes} read, {written_bytes} written"
            row = num_bytes, -1, 0, comm.context, -1, detail
            recorder.rows.append((recorder.rank, comm.stream_name, "move", start_s, end_s, *row))

    def _charge(self, flops: int, common_bytes: int, private_bytes: int, posted_bytes: int) -> None:
        """Tell the meter."""
        charge(flops, common_bytes + private_bytes)
