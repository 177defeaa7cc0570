"""Peers: the ranks of one node as they exchange data in shared memory, without messages.

    meet    a barrier: what each rank wrote before it can be read after it
    show    a meeting at which each rank shows one of its arrays: the others read and write it in place
    post    a meeting at which each rank leaves a copy that all can read and write

Each rank has two rooms for its copies, and uses them in turn; the memory ledger counts them as communication.
Use what others have posted before the next meeting; a rank's own copy stays valid until its second post after that.

         post a      post b      post c
    r    room 0      room 1      room 0       room 0 is overwritten only after all have come to the meeting of b,
         |           |           |            and so no longer use a
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
"""The header before the rooms, with the flags of meetings: two cache lines, because processors fetch them in pairs."""
ROOM_BYTES = 1 << 20
"""The size of one post: those of all ranks of a small node fit in the last-level cache."""


class Views(list[Array]):
    """Every rank's array in place, by rank. If the same arrays are shown again, it may be the same list.

    Attributes:
        kept: data that algorithms cache with it, such as how they cut the arrays.
    """

    __slots__ = ("kept",)

    def __init__(self, arrays: Iterable[Array]) -> None:
        super().__init__(arrays)
        self.kept: dict[Any, Any] = {}


class Peers(ABC):
    """The ranks of a communicator on one node. All of them must make the same calls, in the same order.

    Args:
        comm: the communicator that collectives use.
    """

    def __init__(self, comm: "Communicator") -> None:
        self.comm = comm
        self._spare: dict[Any, Array] = {}
        # The number of the meeting at which something was shown ahead, and its views.
        self._ahead: tuple[int, Views] | None = None

    @abstractmethod
    def meet(self) -> None:
        """Return when all ranks have come; what any of them wrote to shared memory before can be read now."""

    @abstractmethod
    def show(self, x: Array, ahead: bool = False) -> Views | None:
        """Meet, and show x.

        Args:
            ahead: whether the next array shown is x again: if this call returns views, that one takes no meeting.

        Returns:
            every rank's x, by rank, readable and writable, if each has the same size and place in memory from the same
            `comm.empty`; otherwise None, on all ranks.
        """

    @abstractmethod
    def post(self, *parts: Array) -> Sequence[Array]:
        """Meet, and leave a copy of the concatenation of these flat arrays of one dtype.

        Args:
            parts: at least one array, which may be empty; together at most ROOM_BYTES.

        Returns:
            every rank's copy, by rank, readable and writable; the contents after its last item are undefined.

        Raises:
            ArgumentError: the dtype holds objects.
        """

    def memory_of(self, x: Array) -> str:
        """Where arrays like x are: "host"; "devices" if each rank has its own; "device" if ranks share one.

        The first call for an array on a device is collective.
        """
        return "host"

    def led(self, x: Array) -> Sequence[int]:
        """The ranks whose slices of arrays like x this rank reduces: its own."""
        return [self.comm.rank]

    def spare(self, x: Array) -> Array:
        """A private scratch array like x; valid until the next call for the same dtype."""
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
        contention_bytes: int = 0,
    ) -> None:
        """Record and charge the memory traffic of this rank since start_s, including what it posted.

        Args:
            read_bytes, written_bytes: from and to arrays that were shown or posted, its own included.
            peer_bytes: the part of these in the memory of other ranks.
            private_bytes: read from and written to other memory.
            flops: operations of a reduction.
            posted_bytes: the part of written_bytes that was posted, and so read from other memory first.
            contention_bytes: traffic of other ranks that delays this one's, where one link carries more than others.
        """
        if current_meter() is not None:
            near_bytes = read_bytes + written_bytes + private_bytes - peer_bytes
            self._charge(flops, near_bytes, peer_bytes, posted_bytes, contention_bytes)
        comm = self.comm
        if comm.recorder.on:
            span = comm.stream_name, "move", start_s, comm.clock(), read_bytes + written_bytes
            detail = f"{read_bytes} read, {written_bytes} written"
            detail += f", {posted_bytes} of them posted" if posted_bytes else ""
            comm.recorder.add(*span, context=comm.context, detail=detail)

    def _charge(self, flops: int, near_bytes: int, peer_bytes: int, posted_bytes: int, contention_bytes: int) -> None:
        """Charge the meter."""
        charge(flops, near_bytes + peer_bytes)
