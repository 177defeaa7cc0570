"""Communicator: the interface of both worlds, `mpi` and `virtual`, to the layers above."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from simdist.arrays import Array
from simdist.cluster import Cluster
from simdist.comm.checks import ANY, Checks
from simdist.comm.device import HOST, Device, Finding
from simdist.comm.peers import Peers
from simdist.comm.placement import Placement
from simdist.comm.request import Request, Status
from simdist.comm.stream import Stream
from simdist.errors import ArgumentError
from simdist.trace import Recorder

__all__ = ["ANY", "Communicator"]


class Communicator(Checks):
    """A group of ranks that exchange messages, as seen by one of them.

    Messages between two ranks with the same tag arrive in the order in which they were sent. Every wait ends: by a
    deadline in the MPI world, by deadlock detection in the virtual one.

    Attributes:
        rank, size: this rank's index in the group, and how many there are.
        ranks: the global rank of each member.
        nodes: the node of each member; `node` is that of this rank and `num_nodes` their number.
        cluster: the model of the machine, for `auto` and the virtual clock.
        context: the group's name; the same on all members, and unique in the job.
        stream_name: the stream that uses this communicator.
        recorder: where this rank's spans go.
        check: whether collectives compare the arguments of all ranks before they move data.
        doing: the operation under way, for messages about waits.
        entered: how many messages had been sent and received when it began.
        device: where its new arrays are allocated: see `use_device`.
        attached: data that algorithms cache with a communicator, such as the groups that they split it into.
    """

    rank: int
    size: int
    ranks: Sequence[int]
    nodes: Placement
    cluster: Cluster
    context: str
    stream_name: str
    recorder: Recorder
    check: bool
    doing: str
    entered: int = 0
    device: Device = HOST
    attached: dict[str, Any]

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size} of {self.context!r}>"

    if not TYPE_CHECKING:  # which knows better what there is

        def __getattr__(self, name: str) -> Any:
            """Tell those who know another library's communicators where the collectives are."""
            raise AttributeError(
                f"a communicator has no {name!r}; it has rank, size, send, recv, split and more, and collectives are "
                "functions of it: simdist.collectives.all_reduce(x, comm)"
            )

    @property
    def node(self) -> int:
        """The index of this rank's node."""
        return self.nodes[self.rank]

    @property
    def num_nodes(self) -> int:
        """How many nodes the group's ranks are on."""
        return self.nodes.num_nodes

    # -- messages -------------------------------------------------------------------------------------

    def send(self, x: Array, dst: int, tag: int = 0) -> None:
        """Send x, contiguous, to rank dst; returns when x may be reused, which may be before it arrives."""
        self.isend(x, dst, tag).wait()

    def recv(self, x: Array, src: int = ANY, tag: int = ANY) -> Status:
        """Receive into x, contiguous, of the message's dtype and at least as long.

        From ANY source the message that arrives first is taken.

        Raises:
            MessageMismatch: the message is longer than x; or of another dtype, which only the virtual world detects:
                over MPI messages are plain bytes.
            DeadlockError: no rank can ever send it (virtual world, or a world of one rank).
        """
        return self.irecv(x, src, tag).wait()

    @abstractmethod
    def sendrecv(self, x: Array, dst: int, y: Array, src: int) -> None:
        """Send x to dst and receive y, which is no part of x, from src, at the same time, both under tag 0."""

    @abstractmethod
    def isend(self, x: Array, dst: int, tag: int = 0) -> Request:
        """Begin to send; x must stay as it is until the request's `wait`."""

    @abstractmethod
    def irecv(self, x: Array, src: int = ANY, tag: int = ANY) -> Request:
        """Begin to receive; x is filled when the request's `wait` returns."""

    @abstractmethod
    def probe(self, tag: int = ANY, until_s: float = 0.0) -> bool:
        """Whether a message with this tag can be received, from any rank; it is not received yet.

        If there is none, wait for one until `clock` shows until_s: return True as soon as one has arrived, or False
        when the clock shows at least until_s. Receive it with the same tag.
        """

    def barrier(self) -> None:
        """Return when all ranks have called this: by messages, see `simdist.collectives.dissemination`."""
        nothing = np.empty(0, np.uint8)
        group = self.shadow
        outer, entered = group.doing, group.entered
        if not outer:
            group.doing, group.entered = "barrier", group.num_messages
        distance = 1
        while distance < self.size:
            group.sendrecv(nothing, (self.rank + distance) % self.size, nothing, (self.rank - distance) % self.size)
            distance *= 2
        group.doing, group.entered = outer, entered

    # -- groups ---------------------------------------------------------------------------------------

    @abstractmethod
    def split(self, color: int | None, key: int = 0) -> "Communicator | None":
        """The group of all ranks that gave the same color, ordered by (key, rank); None where color is None.

        Every rank of this group must call it.
        """

    def free(self) -> None:
        """Free data that algorithms cache with this group, and the MPI communicators of it and of all its subgroups.

        An MPI supports some 2000 communicators. All ranks of this group must call it, with no message in flight, and
        must not use these groups again; arrays of `empty` and `shared` remain valid. On the world: ArgumentError.
        """
        if self.context == "world":
            raise ArgumentError(f"the world cannot be freed on rank {self.rank}: it lives until the job ends")
        self.attached.clear()

    @property
    @abstractmethod
    def shadow(self) -> "Communicator":
        """A twin communicator of the same ranks for collectives: its messages never match the program's own."""

    @abstractmethod
    def stream(self, name: str) -> Stream:
        """A second stream of this rank. Every rank of the group must ask for it, in the same order.

        Raises:
            ArgumentError: the name is "main", as that of the first.
        """

    @abstractmethod
    def agree(self, what: str, later: bool = False) -> None:
        """Check that all ranks pass the same `what`; does nothing if `check` is off.

        Args:
            later: the check may be deferred to the next meeting of `peers`, which all ranks that agree with this one
                reach.

        Raises:
            CollectiveMismatch: on every rank; it lists what each rank said. Real ranks may catch it and go on; virtual
                ones may be calls apart by then, so that each later call of this group raises it again.
        """

    @abstractmethod
    def exchange(self, note: str, what: str = "an exchange of notes") -> list[str]:
        """All-gather a note of at most NOTE_BYTES bytes; for sizes and set-up, so not on the record.

        Args:
            what: what the notes are for, which all ranks must say alike.

        Raises:
            CollectiveMismatch: as of `agree`.
        """

    def own(self, x: Array) -> None:
        """Check that no two ranks give the same memory to a call that writes to it, as only virtual ones can.

        Raises:
            ArrayError: two do.
        """

    # -- the death of other ranks ---------------------------------------------------------------------

    def survive(self) -> bool:
        """From now on the death of another rank does not end the job; returns whether this world supports that.

        If so, a rank that waits for a dead one, or for ANY, gets PeerLost. All ranks of the job must call it.
        """
        return False

    def lost(self) -> list[int]:
        """Which ranks of this group are known to have died. After this, waits for ANY no longer include these."""
        return []

    def survivors(self) -> "Communicator":
        """This group without its dead ranks, or this group itself if none has died. All living ranks must call it."""
        return self

    # -- time and memory ------------------------------------------------------------------------------

    @abstractmethod
    def clock(self) -> float:
        """Seconds since the job began, on a clock that all ranks share."""

    def compute(self, seconds: float | None = None, flops: float = 0, bytes: float = 0, name: str = "compute") -> None:
        """Advance a virtual clock by `seconds`, or by the device's time for this work; a real one ignores it."""
        self.check_work(seconds, flops, bytes, name)

    def spend(self, seconds: float, name: str = "compute") -> None:
        """Be busy for this long: advance a virtual clock, or sleep under a real one."""
        start_s = self.clock()
        self.check_work(seconds, name=name)
        time.sleep(float(seconds))  # NumPy's bool is no number to it
        self.recorder.add(self.stream_name, name, start_s, self.clock())

    @abstractmethod
    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """A new array in memory shared with the other ranks of the node, if the world has such and enough of it.

        Every rank of the group must call it, in the same order; shapes may differ. If a node lacks room for all of its
        ranks' arrays, each rank gets private memory instead, and a warning says that collectives will be slower.
        """

    @abstractmethod
    def shared(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """One array of zeros that all ranks of the group on this node read and write, as they like.

        Every rank of the group must call it, in the same order, with the same shape and dtype.

        Raises:
            ArgumentError: the dtype holds objects.
            SharedMemoryFull: a node has no room for it; on all ranks.
        """

    @abstractmethod
    def fence(self) -> None:
        """Return when what the ranks of this node wrote to `shared` arrays before now can be read.

        Shared memory does not order accesses by itself. Call this before reading, and again before writing after a
        computation: on virtual ranks it first runs those that are at an earlier time, so that a read sees all writes
        made before it and no later ones. The same applies to memory that the streams of one rank share.
        """

    @abstractmethod
    def peers(self) -> Peers:
        """The ranks of this group as they exchange data in shared memory. The first call is collective.

        Raises:
            ArgumentError: they are on several nodes.
            SharedMemoryFull: the node has no room for the memory that this needs.
        """

    @contextmanager
    def span(self, name: str, num_bytes: int = 0, micro_batch: int = -1, detail: str = "") -> Iterator[None]:
        """Record what happens inside this block as one span, and name it in messages about waits.

        Raises:
            ArgumentError: the name is "send" or "recv", which messages have.
        """
        self.check_span(name)
        outer, entered = self.doing, self.entered
        self.doing, self.entered = f"{outer} > {name}" if outer else name, self.num_messages
        start_s = self.clock()
        try:
            yield
        finally:
            self.doing, self.entered = outer, entered
            span = self.stream_name, name, start_s, self.clock(), num_bytes
            self.recorder.add(*span, micro_batch=micro_batch, detail=detail)

    @property
    def num_messages(self) -> int:
        """How many messages this rank's stream has sent and received; 0 in worlds that do not count them."""
        return 0

    def device_paths(self) -> dict[str, Callable[[], Finding]]:
        """The paths from a GPU's arrays to other ranks, best first, each with a test of whether it works."""
        return {"process": lambda: Finding(True, "all ranks share this process")}
