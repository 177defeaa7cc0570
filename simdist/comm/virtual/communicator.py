"""VirtualCommunicator: messages as copies between arrays, timed by the network model."""

from math import inf
from typing import Any

import numpy as np

from simdist.arrays import Array, empty, kind_of
from simdist.comm.communicator import ANY, Communicator
from simdist.comm.request import Request, Status
from simdist.comm.stream import Stream
from simdist.comm.virtual.channel import Channel, Receipt
from simdist.comm.virtual.group import Group
from simdist.comm.virtual.peers import VirtualPeers
from simdist.comm.virtual.request import AnyReceiving, Receiving, Sending
from simdist.comm.virtual.shared import Shared
from simdist.comm.virtual.stream import VirtualStream
from simdist.errors import MessageMismatch
from simdist.trace import Recorder

__all__ = ["VirtualCommunicator"]


class VirtualCommunicator(Communicator):
    """One rank's view of a group of virtual ranks.

    Each call first waits for its turn, so that ports and channels are used in the order of virtual time. A send ends
    when its message has left this rank's port, a receive when it has arrived.

    Args:
        shared: the state of the run that all ranks share.
        group, rank: the members, and this rank's index among them.
        recorder: where its spans go.
        stream_name: the stream that uses it.
    """

    __slots__ = ("_dst", "_eager_bytes", "_incoming", "_outgoing", "_src", "check", "open", "scheduler")

    def __init__(self, shared: Shared, group: Group, rank: int, recorder: Recorder, stream_name: str = "main") -> None:
        self.rank = rank
        self.size = group.size
        self.ranks = group.ranks
        self.nodes = group.nodes
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
        self.open = shared.open
        self.seen = shared.seen
        self._dst: int | None = None  # of the last exchange, as is _src
        self._src: int | None = None
        self._outgoing: Channel
        self._incoming: Channel
        self._global_rank = group.ranks[rank]
        self._eager_bytes = shared.cluster.eager_bytes
        self._shadow: VirtualCommunicator | None = None
        self._peers: VirtualPeers | None = None
        self._calls: dict[str, int] = {}

    # -- messages -------------------------------------------------------------------------------------

    def sendrecv(self, x: Array, dst: int, y: Array, src: int) -> None:
        """See Communicator. Inlined for speed: most messages of collectives pass here."""
        if self.check and not _can_travel(x, y):
            self.check_exchange(x, y)
        num_bytes = x.nbytes
        if dst is not self._dst or src is not self._src:  # True and 1.0 equal 1; mostly it is with the same ranks
            self._outgoing, self._incoming = self._channel_to(dst), self._channel_from(src)
            self._dst, self._src = dst, src
        if num_bytes > self._eager_bytes:  # the receive is posted first, so that two ranks can exchange large messages
            for request in (self.irecv(y, src, 0), self.isend(x, dst, 0)):
                request.wait()
            return
        outgoing, incoming, scheduler = self._outgoing, self._incoming, self.scheduler
        fiber = scheduler.running
        start_s = fiber.clock_s
        if start_s > scheduler.due_s:
            scheduler.give_way()
        if outgoing.receipts or outgoing.lookout is not None:
            sent_s = outgoing.dispatch(x, num_bytes, 0, start_s)
        else:  # the same as `dispatch`
            sent_s, arrival_s = outgoing.path.carry(num_bytes, start_s)
            outgoing.messages.append((x.copy(), 0, arrival_s, None))
        if recording := self.recorder.on:
            self.note("send", start_s, sent_s, num_bytes, self.ranks[dst], 0)
        if messages := incoming.messages:
            data, tag, arrival_s, sender = messages[0]
            if sender is None and tag == 0 and data.dtype is y.dtype and data.shape == y.shape:
                y[...] = data
                del messages[0]
                if recording:
                    self.note("recv", start_s, max(start_s, arrival_s), y.nbytes, self.ranks[src], 0)
                fiber.clock_s = arrival_s if arrival_s > sent_s else sent_s
                return
        receipt = Receipt(self, y, src, 0)
        incoming.post(receipt, start_s)
        self.finish(receipt, start_s)
        fiber.clock_s = max(receipt.arrival_s, sent_s)

    def isend(self, x: Array, dst: int, tag: int = 0) -> Request:
        """See Communicator."""
        self.check_contiguous("send", x)
        self.check_tag("send", tag)
        self.scheduler.turn()
        now_s, num_bytes = self.scheduler.running.clock_s, x.nbytes
        sending = Sending(self, num_bytes, dst, tag, now_s)
        if num_bytes > self._eager_bytes and dst != self.rank:  # a rank cannot wait for its own receive
            self._channel_to(dst).announce(x, tag, now_s, sending)
        else:
            sending.leave(self._channel_to(dst).dispatch(x, num_bytes, tag, now_s))
        self.open[sending] = "isend", self, dst, tag
        return sending

    def irecv(self, x: Array, src: int = ANY, tag: int = ANY) -> Request:
        """See Communicator. A receive from any source chooses its message in `wait`."""
        self.check_room("recv", x, tag)
        self.scheduler.turn()
        any_src, now_s = self.check_source(src), self.scheduler.running.clock_s
        request = AnyReceiving(self, x, tag, now_s) if any_src else Receiving(self, self._post(x, src, tag), now_s)
        self.open[request] = "irecv", self, src, tag
        return request

    def probe(self, tag: int = ANY, until_s: float = 0.0) -> bool:
        """See Communicator."""
        self.check_probe(tag, until_s)
        until_s = float(until_s)  # a NumPy float32 would make the clock one, too
        return self.seen(self.group.lookout(self.rank).await_first(self.group, self.doing, tag, until_s) is not None)

    def _post(self, y: Array, src: int, tag: int) -> Receipt:
        """Post a receive from a known source; a message that is already there is matched at once."""
        receipt = Receipt(self, y, src, tag)
        self._channel_from(src).post(receipt, self.scheduler.running.clock_s)
        return receipt

    def finish(self, receipt: Receipt, start_s: float) -> Status:
        """Wait until a posted receive is filled, advance the clock to the arrival, and record it."""
        fiber = self.scheduler.running
        if not receipt.done:
            receipt.fiber = fiber
            self.scheduler.block(receipt)
        arrival_s = receipt.arrival_s
        if fiber.clock_s < arrival_s:
            fiber.clock_s = arrival_s
        if receipt.error is not None:
            raise MessageMismatch(*receipt.error.args)  # another one: the receipt would be in its traceback
        if self.recorder.on:
            self.note("recv", start_s, max(start_s, arrival_s), receipt.num_bytes, self.ranks[receipt.src], receipt.tag)
        return Status(receipt.src, receipt.tag, receipt.num_bytes)

    def take_any(self, y: Array, tag: int, start_s: float) -> Status:
        """Receive the message that arrives first, from any rank."""
        channel, lookout = None, self.group.lookout(self.rank)
        while channel is None:
            channel = lookout.await_first(self.group, self.doing, tag, inf)
        return self.finish(self._post(y, channel.src, tag), start_s)

    def _channel_to(self, dst: int) -> Channel:
        self.check_peer("dst", dst)
        return self.group.channel(self.rank, dst)

    def _channel_from(self, src: int) -> Channel:
        self.check_peer("src", src)
        return self.group.channel(src, self.rank)

    def note(self, name: str, start_s: float, end_s: float, num_bytes: int, peer: int, tag: int) -> None:
        """Record a message; only if the recorder is on."""
        me, stream = self._global_rank, self.stream_name
        self.recorder.rows.append((me, stream, name, start_s, end_s, num_bytes, peer, tag, self.context, -1, ""))

    # -- groups ---------------------------------------------------------------------------------------

    def split(self, color: int | None, key: int = 0) -> "VirtualCommunicator | None":
        """See Communicator. Takes no time, but all ranks leave it at the time of the last to come."""
        self.check_split(color, key)
        self.agree("split")
        note, number = "" if color is None else f"{int(color)} {int(key)}", self._count("split")
        notes = self.group.meet("split", number, self.rank, note, self.doing)
        if color is None:
            return None
        group, rank = self.group.part(number, notes, self.rank)
        return self._kin(group, rank, self.stream_name)

    @property
    def shadow(self) -> "VirtualCommunicator":
        """See Communicator."""
        if self._shadow is None:
            group = self.group.twin(".collective", self.group.family)
            self._shadow = self._kin(group, self.rank, self.stream_name)
            self._shadow.attached = self.attached
        self._shadow.doing, self._shadow.device = self.doing, self.device
        return self._shadow

    def stream(self, name: str) -> Stream:
        """See Communicator."""
        self.check_stream(name)
        self.agree(f"stream {name!r}")
        number = self._count(f"stream {name}") + (name == "collective")  # which is the name of the shadow
        context = f".{name}" if number == 1 else f".{name} {number}"
        twin = self._kin(self.group.twin(context), self.rank, name)
        stream = VirtualStream(twin, self.scheduler, self._shared.fiber(self._global_rank, name, daemon=True))
        self._shared.streams.append(stream)
        return stream

    def _kin(self, group: Group, rank: int, stream_name: str) -> "VirtualCommunicator":
        kin = VirtualCommunicator(self._shared, group, rank, self.recorder, stream_name)
        kin.device, kin.cluster, kin.check = self.device, self.cluster, self.check
        return kin

    def agree(self, what: str, later: bool = False) -> None:
        """See Communicator. Takes no time; a rank waits only if another has already contradicted it."""
        if self.check and self.size > 1:
            self.check_caller(what, self.scheduler.running.stream)
            self.group.agree(self._count("agree"), self.rank, what)

    def own(self, x: Array) -> None:
        """See Communicator."""
        if self.check and self.size > 1 and x.size and kind_of(x) != "phantom":
            self.group.own(self._count("own"), self.rank, x)

    def exchange(self, note: str, what: str = "an exchange of notes") -> list[str]:
        """See Communicator. Takes no time, but all ranks leave it at the time of the last to come."""
        self.check_note(note)
        self.agree(what)
        notes = self.group.meet("set-up call", self._count("exchange"), self.rank, note, self.doing)
        return notes.copy()  # each rank has its own

    def _count(self, call: str) -> int:
        number = self._calls[call] = self._calls.get(call, 0) + 1
        return number

    # -- time and memory ------------------------------------------------------------------------------

    def clock(self) -> float:
        """The virtual time of the calling stream."""
        return self.scheduler.running.clock_s

    def compute(self, seconds: float | None = None, flops: float = 0, bytes: float = 0, name: str = "compute") -> None:
        """Advance the clock of the calling stream; on a slow rank, by its factor more."""
        cluster, rank, start_s = self.cluster, self._global_rank, self.clock()
        self.check_work(seconds, flops, bytes, name)
        lasts_s = cluster.seconds(rank, flops, bytes) if seconds is None else seconds * cluster.slow.get(rank, 1.0)
        end_s = start_s + float(lasts_s)  # as in `probe`
        self.check_work(end_s)  # the sum may overflow
        self.scheduler.running.clock_s = end_s
        self.recorder.add(self.stream_name, name, start_s, end_s)

    def spend(self, seconds: float, name: str = "compute") -> None:
        """See Communicator."""
        self.compute(seconds, name=name)

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator. Virtual ranks share one process, so all memory is shared."""
        self.check_new("empty", shape, dtype)
        x = empty(self.device.kind, shape, dtype)
        self._shared.memory.add(x, f"{self.context} {self._count('empty')}")
        return x

    def shared(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator."""
        self.check_new("shared", shape, dtype)
        self.agree(f"shared of shape {shape} and dtype {np.dtype(dtype)}")
        return self.group.shared(self._count("shared"), self.node, shape, dtype)

    def fence(self) -> None:
        """See Communicator. Waits for this rank's turn."""
        self.scheduler.turn()

    def peers(self) -> VirtualPeers:
        """See Communicator."""
        if self._peers is None:
            self.check_one_node()
            self._peers = VirtualPeers(self, self._shared.memory)
        return self._peers


def _can_travel(x: Array, y: Array) -> bool:
    """Whether x can be sent and a message received into y: all checks of a sendrecv in one expression."""
    out, into = getattr(x, "flags", None), getattr(y, "flags", None)
    contiguous = out and into and out.c_contiguous and into.c_contiguous and not isinstance(x, np.generic)
    plain = contiguous and getattr(into, "writeable", True) and not x.dtype.hasobject
    return bool(plain and x is not y and not np.may_share_memory(x, y))
