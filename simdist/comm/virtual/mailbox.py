"""Mailbox: where messages and receives of a virtual rank find each other.

A message that is small enough is under way as soon as it is sent ("eager"): it is copied and has a time of
arrival. A larger one only announces itself and waits, uncopied, until a receive is posted ("rendezvous").
"""

from typing import TYPE_CHECKING, Any

from simdist.arrays import Array
from simdist.comm.communicator import ANY
from simdist.comm.virtual.scheduler import Fiber
from simdist.errors import MessageMismatch

if TYPE_CHECKING:
    from simdist.comm.virtual.communicator import VirtualCommunicator
    from simdist.comm.virtual.group import Group

__all__ = ["Hope", "Mailbox", "Message", "Receipt", "where"]


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
        comm: the communicator that it was posted on.
        array: where the data go.
        src, tag: what it is for; once done, what came.
        num_bytes, arrival_s: how much came, and when.
        done: whether its message has met it.
        error: why it could not be taken.
        fiber: who is blocked until it comes, if anybody is.
    """

    __slots__ = ("array", "arrival_s", "comm", "done", "error", "fiber", "num_bytes", "src", "tag")

    def __init__(self, comm: "VirtualCommunicator", array: Array, src: int, tag: int) -> None:
        self.comm = comm
        self.array = array
        self.src = src
        self.tag = tag
        self.num_bytes = 0
        self.arrival_s = 0.0
        self.done = False
        self.error: MessageMismatch | None = None
        self.fiber: Fiber | None = None

    @property
    def group(self) -> "Group":
        """Whose ranks it waits for."""
        return self.comm.group

    def waits_for(self) -> tuple[str, list[int]]:
        """In words, and the rank that could end the wait."""
        rank = self.group.ranks[self.src]
        return f"waits to receive from rank {rank}{where(self.tag, self.comm.doing)}", [rank]

    def fill(self, data: Array, tag: int, arrival_s: float) -> None:
        """Take the message: copy data, or keep the reason why not."""
        array = self.array
        if data.dtype is array.dtype and data.shape == array.shape:
            array[...] = data
        else:
            self.error = fit(data, array, self.src, tag)
        self.tag = tag
        self.num_bytes = data.nbytes
        self.arrival_s = arrival_s
        self.done = True


def fit(data: Array, array: Array, src: int, tag: int) -> MessageMismatch | None:
    """Copy a message into the array posted for it, which may be longer; or say why that cannot be."""
    if data.dtype != array.dtype or data.size > array.size:
        return MessageMismatch(
            f"a message of {data.size} x {data.dtype} from rank {src} with tag {tag} "
            f"does not fit a receive of {array.size} x {array.dtype}"
        )
    array.reshape(-1)[: data.size] = data.reshape(-1)
    return None


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
        for receipt in self.receipts:
            if receipt.src == src and (receipt.tag == tag or receipt.tag == ANY):
                self.receipts.remove(receipt)
                return receipt
        return None
