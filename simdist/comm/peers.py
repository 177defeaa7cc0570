"""Peers: the ranks of one node as they meet in its memory, without messages.

    meet    all have come:   what each wrote before can be read after it
    show    a meeting at which each shows an array of its own: the others read and write it where it lies
    post    a meeting at which each leaves a copy where all can read and write it

Each rank has two rooms for what it posts, and uses them in turn; a ledger counts them as memory of communication.
What others have posted is to be used before one comes to the next meeting; one's own copy stays until one posts for
the second time after it.

         post a      post b      post c
    r    room 0      room 1      room 0       room 0 is written again when all have come to the meeting of b,
         |           |           |            and so have done with a
         meet        meet        meet
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.meter import current_meter

if TYPE_CHECKING:
    from simdist.comm.communicator import Communicator

__all__ = ["HEAD_BYTES", "ROOM_BYTES", "Peers", "Views"]

HEAD_BYTES = 128
"""Before the rooms, for who has come: two lines, because processors fetch them in pairs."""
ROOM_BYTES = 1 << 20
"""How much can be posted at once: what all ranks of a small node post fits a last-level cache."""


class Views(list[Array]):
    """Every rank's array, by rank, where it lies. Where the same arrays are shown again, it may be the same list.

    Attributes:
        kept: what algorithms keep with it, such as how they cut the arrays.
    """

    __slots__ = ("kept",)

    def __init__(self, arrays: Iterable[Array]) -> None:
        super().__init__(arrays)
        self.kept: dict[Any, Any] = {}


class Peers(ABC):
    """All ranks of a communicator on one node. Each of them must make the same calls, in the same order.

    Args:
        comm: the communicator that collectives talk on.
    """

    def __init__(self, comm: "Communicator") -> None:
        self.comm = comm
        self._spare: dict[Any, Array] = {}
        self._ahead: tuple[int, Views] | None = None  # at which meeting something was shown ahead, and what

    @abstractmethod
    def meet(self) -> None:
        """Return when all have come; what any of them wrote to memory in common before that can be read now."""

    @abstractmethod
    def show(self, x: Array, ahead: bool = False) -> Views | None:
        """Meet, and show x.

        Args:
            ahead: whether, if all can be reached, the next that is shown is x again: that then takes no other meeting.

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

    def memory_of(self, x: Array) -> str:
        """Whose memory arrays like x lie in: the "host"'s, or "devices"' of which each rank has one, or a "device"'s
        that some ranks share. The first call for one on a device is one for all ranks together.
        """
        return "host"

    def led(self, x: Array) -> Sequence[int]:
        """The ranks whose slices of arrays like x this rank reduces: its own."""
        return [self.comm.rank]

    def spare(self, x: Array) -> Array:
        """An array like x, of this rank's own; until the next call for the same dtype."""
        key = type(x), x.dtype
        kept = self._spare.get(key)
        if kept is None or len(kept) < len(x):
            kept = self._spare[key] = np.empty_like(x)
        return kept[: len(x)]

    def moved(
        self,
        start_s: float,
        read_bytes: int,
        written_bytes: int,
        peer_bytes: int,
        private_bytes: int = 0,
        flops: int = 0,
        posted_bytes: int = 0,
        crowd_bytes: int = 0,
    ) -> None:
        """Record and charge what this rank has done since start_s, and what it had posted before.

        Args:
            read_bytes, written_bytes: from and to what was shown or posted, its own included.
            peer_bytes: how much of these lies in the parts of other ranks.
            private_bytes: read from and written to other memory.
            flops: operations of a reduction.
            posted_bytes: how much of what was written was posted, for which as much was read from other memory.
            crowd_bytes: what others move over the same link, and is in the way, where one link has more to carry than
                the others.
        """
        if current_meter() is not None:
            near_bytes = read_bytes + written_bytes + private_bytes - peer_bytes
            self._charge(flops, near_bytes, peer_bytes, posted_bytes, crowd_bytes)
        comm = self.comm
        recorder = comm.recorder
        if recorder.on:
            end_s, detail = comm.clock(), f"{read_bytes} read, {written_bytes} written"
            if posted_bytes:
                detail += f", {posted_bytes} of them posted"
            row = read_bytes + written_bytes, -1, 0, comm.context, -1, detail
            recorder.rows.append((recorder.rank, comm.stream_name, "move", start_s, end_s, *row))

    def _charge(self, flops: int, near_bytes: int, peer_bytes: int, posted_bytes: int, crowd_bytes: int) -> None:
        """Tell the meter."""
        charge(flops, near_bytes + peer_bytes)
