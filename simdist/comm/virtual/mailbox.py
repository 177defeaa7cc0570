"""Mailbox: where messages and receives of a virtual rank find each other.

A message that is small enough is under way as soon as it is sent ("eager"): it is copied and has a time of
arrival. A larger one only announces itself and waits, uncopied, until a receive is posted ("rendezvous").
"""

from typing import Any

from simdist.arrays import Array
from simdist.comm.communicator import ANY, Status
from simdist.comm.virtual.scheduler import Fiber
from simdist.errors import MessageMismatch, SimdistError

__all__ = ["Hope", "Mailbox", "Message", "Receipt", "copy_message", "where"]


class Message:
    """A message that no receive has taken yet.

    Attributes:
        data: the array, or a copy of it.
        ready_s: when it arrives; for one that only announces itself, when the announcement does.
        sending: the request of a sender who waits to be called; None for a message under way.
    """

    __slots__ = ("data", "ready_s", "sending", "src", "tag")

    def __init__(self, data: Array, src: int, tag: int, ready_s: float, sending: Any = None) -> None:
        self.data = data
        self.src = src
        self.tag = tag
        self.ready_s = ready_s
        self.sending = sending


class Receipt:
    """A posted receive from one known source, and what came of it.

    Attributes:
        group, doing: where it was posted, and during which operation.
        array: where the data go.
        done: whether its message has met it.
        status, arrival_s: what came, and when.
        error: why it could not be taken.
        fiber: who is blocked until it comes, if anybody is.
    """

    __slots__ = ("array", "arrival_s", "doing", "done", "error", "fiber", "group", "src", "status", "tag")

    def __init__(self, group: Any, doing: str, array: Array, src: int, tag: int) -> None:
        self.group = group
        self.doing = doing
        self.array = array
        self.src = src
        self.tag = tag
        self.done = False
        self.status: Status
        self.arrival_s = 0.0
        self.error: SimdistError | None = None
        self.fiber: Fiber | None = None

    def waits_for(self) -> tuple[str, list[int]]:
        """In words, and the rank that could end the wait."""
        rank = self.group.ranks[self.src]
        return f"waits to receive from rank {rank}{where(self.tag, self.doing)}", [rank]

    def fill(self, data: Array, src: int, tag: int, arrival_s: float) -> None:
        """Take the message: copy data, or keep the reason why not."""
        try:
            copy_message(data, self.array, src, tag)
        except MessageMismatch as error:
            self.error = error
        self.done = True
        self.status = Status(src, tag, data.nbytes)
        self.arrival_s = arrival_s


def copy_message(data: Array, array: Array, src: int, tag: int) -> None:
    """Copy a message into the array posted for it, which may be longer.

    Raises:
        MessageMismatch: it is too long, or of another dtype.
    """
    if data.dtype is array.dtype and data.shape == array.shape:
        array[...] = data
        return
    if data.dtype != array.dtype or data.size > array.size:
        raise MessageMismatch(
            f"a message of {data.size} x {data.dtype} from rank {src} with tag {tag} "
            f"does not fit a receive of {array.size} x {array.dtype}"
        )
    array.reshape(-1)[: data.size] = data.reshape(-1)


class Hope:
    """A fiber blocked in a receive from any source."""

    __slots__ = ("doing", "fiber", "group", "tag")

    def __init__(self, group: Any, doing: str, fiber: Fiber, tag: int) -> None:
        self.group = group
        self.doing = doing
        self.fiber = fiber
        self.tag = tag

    def waits_for(self) -> tuple[str, list[int]]:
        """In words, and the ranks that could end the wait."""
        ranks = [r for r in self.group.ranks if r != self.fiber.rank]
        return f"waits to receive from any rank{where(self.tag, self.doing)}", ranks


def where(tag: int, doing: str) -> str:
    """The rest of the sentence about a wait."""
    return (f" with tag {tag}" if tag not in (ANY, 0) else "") + (f" in {doing}" if doing else "")


class Mailbox:
    """What has been sent to one member of a group, and what it has posted.

    Attributes:
        messages: by source, in the order sent; a source with none has no entry.
        receipts: the receives posted from a known source that no message has met.
        hopes: the receives from any source that are blocked.
    """

    __slots__ = ("hopes", "messages", "receipts")

    def __init__(self) -> None:
        self.messages: dict[int, list[Message]] = {}
        self.receipts: list[Receipt] = []
        self.hopes: list[Hope] = []

    def put(self, message: Message) -> None:
        """Keep a message until it is taken."""
        queue = self.messages.get(message.src)
        if queue is None:
            self.messages[message.src] = [message]
        else:
            queue.append(message)

    def take(self, src: int, tag: int) -> Message | None:
        """The oldest message from src with this tag, taken out; None where there is none."""
        queue = self.messages.get(src)
        if queue is None:
            return None
        message: Message | None = queue[0]
        if tag not in (queue[0].tag, ANY):
            message = next((m for m in queue if m.tag == tag), None)
        if message is None:
            return None
        queue.remove(message)
        if not queue:
            del self.messages[src]
        return message

    def first(self, tag: int) -> Message | None:
        """Of the oldest messages of all sources with this tag the one that is ready first; it stays."""
        best = None
        for queue in self.messages.values():
            message = next((m for m in queue if tag in (m.tag, ANY)), None)
            if message is not None and (best is None or message.ready_s < best.ready_s):
                best = message
        return best

    def awaiting(self, src: int, tag: int) -> Receipt | None:
        """The oldest posted receive that a message from src with this tag meets, taken out."""
        for i, receipt in enumerate(self.receipts):
            if receipt.src == src and receipt.tag in (tag, ANY):
                del self.receipts[i]
                return receipt
        return None
