"""Requests: nonblocking sends and receives of virtual ranks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simdist.arrays import Array
from simdist.comm.request import Request, Status
from simdist.comm.virtual.channel import Receipt, where
from simdist.comm.virtual.scheduler import Fiber

if TYPE_CHECKING:
    from simdist.comm.virtual.communicator import VirtualCommunicator

__all__ = ["AnyReceiving", "Receiving", "Sending"]


class Sending(Request):
    """A send that has left its port, or a large one whose receive is not posted yet.

    Attributes:
        number: of a large one, in the order of the sends of all ranks.
    """

    __slots__ = ("_about", "_comm", "_doing", "_fiber", "_sent_s", "_start_s", "group", "number")

    def __init__(self, comm: "VirtualCommunicator", num_bytes: int, dst: int, tag: int, start_s: float) -> None:
        self.group = comm.group
        self.number = 0
        self._comm = comm
        self._doing = comm.doing
        self._about = Status(dst, tag, num_bytes)
        self._start_s = start_s
        self._sent_s: float | None = None
        self._fiber: Fiber | None = None

    def leave(self, sent_s: float) -> None:
        """Note that the message leaves the port at this time."""
        comm = self._comm
        self._sent_s = sent_s
        if comm.recorder.on:
            dst, tag, num_bytes = self._about
            comm.note("send", self._start_s, sent_s, num_bytes, self.group.ranks[dst], tag)
        if self._fiber is not None:
            comm.scheduler.ready(self._fiber, max(self._fiber.clock_s, sent_s))

    @property
    def over(self) -> bool:
        """See Request."""
        self._comm.scheduler.turn()
        return self._comm.seen(self._sent_s is not None and self._sent_s <= self._comm.clock())

    def waits_for(self) -> tuple[str, list[int]]:
        """See Waiting."""
        dst, tag, num_bytes = self._about
        rank = self.group.ranks[dst]
        return f"waits to send {num_bytes} bytes to rank {rank}{where(tag, self._doing)}", [rank]

    def give_up(self, fiber: Fiber) -> None:
        """See Waiting."""
        self._fiber = None

    def _finish(self) -> Status:
        """Block until the array may be changed; the status names the receiver."""
        self._comm.open.pop(self, None)
        scheduler = self._comm.scheduler
        fiber = scheduler.running
        if self._sent_s is None:
            self._fiber = fiber
            scheduler.block(self)
        if self._sent_s is not None and fiber.clock_s < self._sent_s:
            fiber.clock_s = self._sent_s
        return self._about


@dataclass(eq=False, repr=False)
class Receiving(Request):
    """A receive from a known source; its message may already be there."""

    _comm: "VirtualCommunicator"
    _receipt: Receipt
    _start_s: float

    @property
    def over(self) -> bool:
        """See Request."""
        self._comm.scheduler.turn()
        return self._comm.seen(self._receipt.done and self._receipt.arrival_s <= self._comm.clock())

    def _finish(self) -> Status:
        self._comm.open.pop(self, None)
        return self._comm.finish(self._receipt, self._start_s)


@dataclass(eq=False, repr=False)
class AnyReceiving(Request):
    """A receive from any source, which chooses its message in `wait`."""

    _comm: "VirtualCommunicator"
    _x: Array
    _tag: int
    _start_s: float

    @property
    def over(self) -> bool:
        """See Request."""
        return super().over or self._comm.probe(self._tag)

    def _finish(self) -> Status:
        self._comm.open.pop(self, None)
        return self._comm.take_any(self._x, self._tag, self._start_s)
