"""VirtualCommunicator: a rank's messages as copies between arrays, timed by the network's model."""

from math import inf
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.cluster import Path
from simdist.comm.communicator import ANY, Communicator, Request, Status, Stream
from simdist.comm.virtual.group import Group
from simdist.comm.virtual.mailbox import Hope, Mailbox, Message, Receipt
from simdist.comm.virtual.request import AnyReceiving, Receiving, Sending
from simdist.comm.virtual.shared import Shared
from simdist.comm.virtual.stream import VirtualStream
from simdist.trace import Recorder

__all__ = ["VirtualCommunicator"]


class VirtualCommunicator(Communicator):
    """One rank's view of a group of virtual ranks.

    Each call first waits for its turn, so that whatever touches ports and mailboxes happens in the order of
    virtual time.

    Args:
        shared: what all ranks of the run share.
        group: the members.
        rank: which of them this is.
        recorder: where its spans go.
        stream_name: which stream it is meant for.
    """

    def __init__(self, shared: Shared, group: Group, rank: int, recorder: Recorder, stream_name: str = "main") -> None:
        self.rank = rank
        self.size = group.size
        self.ranks = group.ranks
        self.nodes = group.nodes
        self.num_nodes = group.num_nodes
        self.cluster = shared.cluster
        self.context = group.context
        self.stream_name = stream_name
        self.recorder = recorder
        self.check = shared.check
        self.doing = ""
        self.attached: dict[str, Any] = {}
        self._shared = shared
        self.group = group
        self.scheduler = shared.scheduler
        self._routes: dict[int, tuple[Path, Mailbox]] = {}
        self._mailbox = group.mailboxes[rank]
        self._global_rank = group.ranks[rank]
        self._eager_bytes = shared.cluster.eager_bytes
        self._rows = recorder.rows if recorder.on else None
        self._shadow: VirtualCommunicator | None = None
        self._calls = {"agree": 0, "exchange": 0, "split": 0, "shared": 0}

    # -- messages -------------------------------------------------------------------------------------

    def send(self, x: Array, dst: int, tag: int = 0) -> None:
        """See Communicator. Blocks until the message has left this rank's port."""
        self.isend(x, dst, tag).wait()

    def recv(self, x: Array, src: int = ANY, tag: int = ANY) -> Status:
        """See Communicator. The clock moves on to the message's arrival."""
        return self.irecv(x, src, tag).wait()

    def sendrecv(self, x: Array, dst: int, y: Array, src: int) -> None:
        """See Communicator."""
        scheduler = self.scheduler
        scheduler.turn()
        if x.nbytes > self._eager_bytes:
            # The receive is posted first: of two ranks that send each other something large, both are ready.
            receiving, sending = self.irecv(y, src, 0), self.isend(x, dst, 0)
            receiving.wait()
            sending.wait()
            return
        fiber = scheduler.running
        start_s = fiber.clock_s
        sent_s = self._dispatch(x, dst, 0, start_s)
        if self._rows is not None:
            self.note("send", start_s, sent_s, x.nbytes, self.ranks[dst], 0)
        self.finish(self._post(y, src, 0), start_s)
        if fiber.clock_s < sent_s:
            fiber.clock_s = sent_s

    def isend(self, x: Array, dst: int, tag: int = 0) -> Request:
        """See Communicator."""
        self.scheduler.turn()
        now_s = self.scheduler.running.clock_s
        sending = Sending(self, x, dst, tag, now_s)
        if x.nbytes <= self._eager_bytes:
            sending.leave(self._dispatch(x, dst, tag, now_s))
            return sending
        path, mailbox = self._route(dst)
        receipt = mailbox.awaiting(self.rank, tag)
        if receipt is not None:
            sending.leave(self._deliver(x, path, self.rank, tag, receipt))
        else:
            mailbox.put(Message(x, self.rank, tag, now_s + path.alpha_s, sending))
            self._wake(mailbox, tag, now_s + path.alpha_s)
        return sending

    def irecv(self, x: Array, src: int = ANY, tag: int = ANY) -> Request:
        """See Communicator. One from any source chooses its message when it is waited for."""
        self.scheduler.turn()
        start_s = self.scheduler.running.clock_s
        if src == ANY:
            return AnyReceiving(self, x, tag, start_s)
        return Receiving(self, self._post(x, src, tag), start_s)

    def probe(self, tag: int = ANY, until_s: float = 0.0) -> bool:
        """See Communicator."""
        self.scheduler.turn()
        return self._first(tag, until_s) is not None

    # The four ways in which a message and a receive can meet. Times are those of the call that makes them.

    def _dispatch(self, x: Array, dst: int, tag: int, now_s: float) -> float:
        """Put a small message under way; when it has left."""
        src = self.rank
        path, mailbox = self._routes.get(dst) or self._route(dst)
        sent_s, arrival_s = path.carry(x.nbytes, now_s)
        receipt = mailbox.awaiting(src, tag) if mailbox.receipts else None
        if receipt is None:
            mailbox.put(Message(x.copy(), src, tag, arrival_s))
            if mailbox.hopes:
                self._wake(mailbox, tag, arrival_s)
        else:
            receipt.fill(x, tag, arrival_s)
            if receipt.fiber is not None:
                self.scheduler.ready(receipt.fiber, arrival_s)
        return sent_s

    def _wake(self, mailbox: Mailbox, tag: int, ready_s: float) -> None:
        """Let those go on that hope for a message like one just put there."""
        for hope in mailbox.hopes:
            if hope.tag in (tag, ANY):
                self.scheduler.ready(hope.fiber, max(hope.fiber.clock_s, ready_s))

    def _deliver(self, x: Array, path: Path, src: int, tag: int, receipt: Receipt) -> float:
        """Carry a large message, now that both sides are ready; when it has left."""
        sent_s, arrival_s = path.carry(x.nbytes, self.scheduler.running.clock_s)
        receipt.fill(x, tag, arrival_s)
        if receipt.fiber is not None:
            self.scheduler.ready(receipt.fiber, arrival_s)
        return sent_s

    def _accept(self, message: Message, receipt: Receipt) -> None:
        """Give a message taken from the mailbox to a receive."""
        if message.sending is None:
            receipt.fill(message.data, message.tag, message.ready_s)
        else:
            path = self._shared.network.path(self.ranks[message.src], self._global_rank)
            message.sending.leave(self._deliver(message.data, path, message.src, message.tag, receipt))

    def _route(self, dst: int) -> tuple[Path, Mailbox]:
        """The way to a rank and what is at its end, kept from the first message on."""
        self.check_peer("dst", dst)
        route = self._shared.network.path(self._global_rank, self.ranks[dst]), self.group.mailboxes[dst]
        return self._routes.setdefault(dst, route)

    def _post(self, y: Array, src: int, tag: int) -> Receipt:
        """Post a receive from a known source; it may meet its message at once."""
        if not 0 <= src < self.size:
            self.check_peer("src", src)
        receipt, mailbox = Receipt(self, y, src, tag), self._mailbox
        message = mailbox.take(src, tag) if mailbox.messages else None
        if message is None:
            mailbox.receipts.append(receipt)
        else:
            self._accept(message, receipt)
        return receipt

    def finish(self, receipt: Receipt, start_s: float) -> None:
        """Wait until a posted receive is filled, move the clock on to the arrival, and record it."""
        fiber = self.scheduler.running
        if not receipt.done:
            receipt.fiber = fiber
            try:
                self.scheduler.block(receipt)
            except BaseException:
                if not receipt.done:
                    self._mailbox.receipts.remove(receipt)
                raise
        if receipt.error is not None:
            raise receipt.error
        arrival_s = receipt.arrival_s
        if fiber.clock_s < arrival_s:
            fiber.clock_s = arrival_s
        if self._rows is not None:
            end_s = arrival_s if arrival_s > start_s else start_s
            self.note("recv", start_s, end_s, receipt.num_bytes, self.ranks[receipt.src], receipt.tag)

    def _first(self, tag: int, until_s: float) -> Message | None:
        """The message that arrives first, until then; it stays, and the clock moves on to its arrival or to until_s.

        A message that is on its way may be overtaken by one not yet sent; so this waits, with the message
        in sight, until no other rank is at an earlier time than its arrival.
        """
        scheduler, mailbox = self.scheduler, self._mailbox
        fiber = scheduler.running
        while True:
            message = mailbox.first(tag)
            ready_s = inf if message is None else message.ready_s
            if ready_s <= fiber.clock_s or until_s <= fiber.clock_s:
                return message if ready_s <= fiber.clock_s else None
            hope = Hope(self.group, self.doing, fiber, tag)
            mailbox.hopes.append(hope)
            if (next_s := min(ready_s, until_s)) < inf:
                scheduler.ready(fiber, next_s)
            try:
                scheduler.block(hope)
            finally:
                mailbox.hopes.remove(hope)
            message = mailbox.first(tag)
            next_s = min(inf if message is None else message.ready_s, until_s)
            if next_s < inf:
                fiber.clock_s = max(fiber.clock_s, next_s)

    def take_any(self, y: Array, tag: int, start_s: float) -> Status:
        """Receive what arrives first, from whomever."""
        message = self._first(tag, inf)
        if message is None:
            return self.take_any(y, tag, start_s)
        self._mailbox.take(message.src, message.tag)
        receipt = Receipt(self, y, message.src, message.tag)
        self._accept(message, receipt)
        self.finish(receipt, start_s)
        return Status(receipt.src, receipt.tag, receipt.num_bytes)

    def note(self, name: str, start_s: float, end_s: float, num_bytes: int, peer: int, tag: int) -> None:
        """Record a message."""
        if self._rows is not None:
            self._rows.append(
                (self._global_rank, self.stream_name, name, start_s, end_s, num_bytes, peer, tag, self.context, -1, "")
            )

    # -- groups ---------------------------------------------------------------------------------------

    def split(self, color: int | None, key: int = 0) -> "VirtualCommunicator | None":
        """See Communicator. The call itself takes no time, but all leave it at the time of the last to come."""
        self.check_split(color, key)
        notes = self.exchange("" if color is None else f"{int(color)} {int(key)}")
        number = self._count("split")
        if color is None:
            return None
        wanted = [tuple(map(int, note.split())) if note else None for note in notes]
        members = sorted((w[1], r) for r, w in enumerate(wanted) if w is not None and w[0] == color)
        ranks = [r for _, r in members]
        group = self.group.subgroup(f"/{number}:{color}", ranks)
        return VirtualCommunicator(self._shared, group, ranks.index(self.rank), self.recorder, self.stream_name)

    @property
    def shadow(self) -> "VirtualCommunicator":
        """See Communicator."""
        if self._shadow is None:
            group = self.group.twin(".collective", self.group.family)
            self._shadow = VirtualCommunicator(self._shared, group, self.rank, self.recorder, self.stream_name)
            self._shadow.attached = self.attached
        self._shadow.doing = self.doing
        return self._shadow

    def stream(self, name: str) -> Stream:
        """See Communicator."""
        twin = VirtualCommunicator(self._shared, self.group.twin(f".{name}"), self.rank, self.recorder, name)
        fiber = self._shared.fiber(self._global_rank, name, daemon=True)
        stream = VirtualStream(twin, self.scheduler, fiber)
        self._shared.streams.append(stream)
        return stream

    def agree(self, what: str) -> None:
        """See Communicator. Takes no time, and a rank goes on as soon as it has not been contradicted."""
        if self.check and self.size > 1:
            self.group.agree(self._count("agree"), self.rank, what)

    def exchange(self, note: str) -> list[str]:
        """See Communicator. Takes no time, but all leave it at the time of the last to come."""
        self.scheduler.turn()
        return self.group.exchange(self._count("exchange"), self.rank, note)

    def _count(self, call: str) -> int:
        self._calls[call] += 1
        return self._calls[call]

    # -- time and memory ------------------------------------------------------------------------------

    def clock(self) -> float:
        """The virtual time of the stream that asks."""
        return self.scheduler.running.clock_s

    def compute(self, seconds: float | None = None, flops: float = 0, bytes: float = 0, name: str = "compute") -> None:
        """Move the clock of the stream that calls; a slow rank's by its factor more."""
        fiber = self.scheduler.running
        start_s = fiber.clock_s
        if seconds is None:
            fiber.clock_s += self.cluster.seconds(self._global_rank, flops, bytes)
        else:
            fiber.clock_s += seconds * self.cluster.slow.get(self._global_rank, 1.0)
        self.recorder.add(self.stream_name, name, start_s, fiber.clock_s)

    def spend(self, seconds: float, name: str = "compute") -> None:
        """See Communicator."""
        self.compute(seconds, name=name)

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator. Virtual ranks share one process, so any memory will do."""
        return np.empty(shape, dtype)

    def shared(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator."""
        self.check_shared(dtype)
        self.agree(f"shared of shape {shape} and dtype {np.dtype(dtype)}")
        return self.group.shared(self._count("shared"), self.node, shape, dtype)

    def fence(self) -> None:
        """See Communicator. Waits for its turn."""
        self.scheduler.turn()
