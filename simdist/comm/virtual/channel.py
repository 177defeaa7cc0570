"""Channel: the path from one member of a group to another, where messages are matched with receives.

A message that is small, or to the sender itself, leaves as soon as it is sent ("eager"): it is copied and has a time of
arrival. A larger one is only announced, and waits, uncopied, until a receive is posted ("rendezvous"). If one is posted
already, the message leaves at once, as if its announcement took no time, but after the small ones of that instant. A
receive from any source has to wait for the announcement, one latency, because it does not know before which message is
first.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from simdist.arrays import Array
from simdist.cluster import Path, Routed
from simdist.comm.communicator import ANY
from simdist.comm.open_requests import with_tag
from simdist.comm.virtual.scheduler import Fiber, Scheduler
from simdist.errors import MessageMismatch

if TYPE_CHECKING:
    from simdist.comm.virtual.communicator import VirtualCommunicator
    from simdist.comm.virtual.group import Group
    from simdist.comm.virtual.lookout import Lookout
    from simdist.comm.virtual.request import Sending

__all__ = ["Channel", "Message", "Receipt", "where"]

Message: TypeAlias = tuple[Array, int, float, "Sending | None"]
"""(data, tag, ready_s, sending): a message that no receive has taken. A tuple, because very many are made.

    data        a copy of the array, or the array itself if the message is only announced
    ready_s     when the message, or its announcement, arrives
    sending     the request of an announced message; None for an eager one
"""


@dataclass(eq=False, slots=True)
class Receipt:
    """A posted receive from one known source, and its outcome.

    Attributes:
        comm: the communicator that it was posted on.
        array: the buffer for the data.
        src, tag: of the messages that it matches; once done, of its message.
        num_bytes, arrival_s: once done, the size and arrival of its message.
        done: whether a message has been matched.
        error: why the message does not fit.
        fiber: the fiber that is blocked until it is done, if any.
    """

    comm: "VirtualCommunicator"
    array: Array
    src: int
    tag: int
    num_bytes: int = field(init=False)
    arrival_s: float = field(init=False)
    done: bool = False
    error: MessageMismatch | None = None
    fiber: Fiber | None = None

    @property
    def group(self) -> "Group":
        """See Waiting."""
        return self.comm.group

    def waits_for(self) -> tuple[str, list[int]]:
        """See Waiting."""
        rank = self.group.ranks[self.src]
        others = self.group.channel(self.src, self.comm.rank).messages
        there = f"; a message with tag {others[0][1]} has come from it" if others else ""
        return f"waits to receive from rank {rank}{where(self.tag, self.comm.doing)}{there}", [rank]

    def give_up(self, fiber: Fiber) -> None:
        """See Waiting."""
        receipts = self.group.channel(self.src, self.comm.rank).receipts
        if self in receipts:  # an earlier failed wait has removed it
            receipts.remove(self)

    def fill(self, data: Array, tag: int, arrival_s: float) -> None:
        """Take the message: copy its data, or record why it does not fit."""
        array = self.array
        if data.dtype is array.dtype and data.shape == array.shape:
            array[...] = data
        elif data.dtype == array.dtype and data.size <= array.size:
            array.reshape(-1)[: data.size] = data.reshape(-1)
        else:
            src, dst = self.group.ranks[self.src], self.group.ranks[self.comm.rank]
            self.error = MessageMismatch(
                f"a message of {data.size} x {data.dtype} from rank {src} to rank {dst} with tag {tag} "
                f"does not fit a receive of {array.size} x {array.dtype}"
            )
        self.tag = tag
        self.num_bytes = data.nbytes
        self.arrival_s = arrival_s
        self.done = True


def where(tag: int, doing: str) -> str:
    """The end of the sentence about a wait."""
    return with_tag(tag) + (f" in {doing}" if doing else "")


@dataclass(eq=False, slots=True)
class Channel:
    """A path from one source, with the unmatched messages and receives at its end.

    Args:
        src: the source's rank in the group.
        path: the ports and the link.
        scheduler: resumes the receiver of a message.
        lookout: is told of messages, if the receiver ever receives from any source.

    Attributes:
        messages: the unmatched messages, the oldest first.
        receipts: the unmatched receives from this source, the oldest first.
    """

    src: int
    path: Path | Routed
    scheduler: Scheduler
    lookout: "Lookout | None"
    messages: list[Message] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)

    # The ways to match a message with a receive; now_s is the time of the call.

    def dispatch(self, x: Array, num_bytes: int, tag: int, now_s: float) -> float:
        """Send an eager message; returns when it has left the sender's port."""
        sent_s, arrival_s = self.path.carry(num_bytes, now_s)
        receipt = self._awaiting(tag) if self.receipts else None
        if receipt is None:
            self.messages.append((x.copy(), tag, arrival_s, None))
            if self.lookout is not None:
                self.lookout.tell(self, tag, arrival_s)
        else:
            receipt.fill(x, tag, arrival_s)
            if receipt.fiber is not None:
                self.scheduler.resume(receipt.fiber, arrival_s)
        return sent_s

    def announce(self, x: Array, tag: int, now_s: float, sending: "Sending") -> None:
        """Announce a large message, or deliver it if its receive is already posted."""
        sending.number = next(self.scheduler.numbers)
        receipt = self._awaiting(tag)
        if receipt is None:
            ready_s = now_s + self.path.alpha_s
            self.messages.append((x, tag, ready_s, sending))
            if self.lookout is not None:
                self.lookout.tell(self, tag, ready_s)
        else:
            self._deliver(x, tag, now_s, sending, receipt)

    def post(self, receipt: Receipt, now_s: float) -> None:
        """Post a receive; a message that is already there is matched at once."""
        message = self._take(receipt.tag)
        if message is None:
            self.receipts.append(receipt)
            return
        data, tag, ready_s, sending = message
        if sending is None:
            receipt.fill(data, tag, ready_s)
        else:
            self._deliver(data, tag, now_s, sending, receipt)

    def first(self, tag: int) -> Message | None:
        """The oldest message with this tag, not removed."""
        return next((m for m in self.messages if tag in (m[1], ANY)), None)

    def _deliver(self, x: Array, tag: int, now_s: float, sending: "Sending", receipt: Receipt) -> None:
        """Transfer a large message, now that both sides are ready: of those ready at one instant, the first sent first.

        Else they would leave in the order in which the receives are posted, which depends on the order of the ranks.
        """

        def leave() -> None:
            sent_s, arrival_s = self.path.carry(x.nbytes, now_s)
            receipt.fill(x, tag, arrival_s)
            if receipt.fiber is not None:
                self.scheduler.resume(receipt.fiber, arrival_s)
            sending.leave(sent_s)

        self.scheduler.finally_do(sending.number, leave)

    def _take(self, tag: int) -> Message | None:
        """Remove and return the oldest message with this tag; None if there is none."""
        for i, message in enumerate(self.messages):
            if tag == message[1] or tag == ANY:
                return self.messages.pop(i)
        return None

    def _awaiting(self, tag: int) -> Receipt | None:
        """Remove and return the oldest posted receive that matches this tag; None if there is none."""
        for i, receipt in enumerate(self.receipts):
            if receipt.tag == tag or receipt.tag == ANY:
                return self.receipts.pop(i)
        return None
