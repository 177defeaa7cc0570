"""Communicator: what a rank knows of the other ranks, and how it reaches them.

This is all that the code above knows of a world; `mpi` and `virtual` fill it in.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array
from simdist.cluster import Cluster
from simdist.errors import ArgumentError
from simdist.trace import Recorder

__all__ = ["ANY", "Communicator", "Request", "Status", "Stream", "Work"]

ANY = -1
"""Any source, any tag."""


class Status(NamedTuple):
    """What a receive got: from whom, under which tag, how many bytes."""

    src: int
    tag: int
    num_bytes: int


class Request(ABC):
    """A send or a receive under way. Its array is not to be touched until `wait` returns."""

    @abstractmethod
    def wait(self) -> Status:
        """Block until it is done; for a receive, tell what came. A second wait returns the same at once."""


class Work(ABC):
    """A function under way on another stream."""

    @abstractmethod
    def wait(self) -> Any:
        """Block until it is done; return what it returned or raise what it raised."""


class Stream(ABC):
    """A second line of work of this rank, in order in itself and beside the others.

    Attributes:
        comm: the communicator's twin on this stream: same ranks, and messages that match only each other.
    """

    comm: "Communicator"

    @abstractmethod
    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Work:
        """Call function(*args, **kwargs) on this stream, after all that was started there before."""


class Communicator(ABC):
    """A group of ranks that talk, as one of them sees it.

    Messages between two ranks with the same tag arrive in the order in which they were sent. Every wait has
    an end: a deadline in the MPI world, the discovery of the deadlock in the virtual one.

    Attributes:
        rank, size: this rank's index in the group, and how many there are.
        ranks: the global rank of each member.
        nodes: the node of each member; `node` is this rank's own and `num_nodes` how many there are.
        cluster: the machine as `auto` and the virtual clock see it.
        context: the group's name; the same on all members, and unique in the job.
        stream_name: the stream this communicator is meant for.
        recorder: where this rank's spans go.
        check: whether collectives compare what the ranks ask for before they move data.
        doing: the operation under way, for messages about waits.
        attached: what algorithms keep with a communicator, such as the groups that they split it into.
    """

    rank: int
    size: int
    ranks: Sequence[int]
    nodes: Sequence[int]
    num_nodes: int
    cluster: Cluster
    context: str
    stream_name: str
    recorder: Recorder
    check: bool
    doing: str
    attached: dict[str, Any]

    @property
    def node(self) -> int:
        """The index of the node that this rank lives on."""
        return self.nodes[self.rank]

    # -- messages -------------------------------------------------------------------------------------

    @abstractmethod
    def send(self, x: Array, dst: int, tag: int = 0) -> None:
        """Send x, contiguous, to rank dst; returns when x may be changed, which may be before it arrives."""

    @abstractmethod
    def recv(self, x: Array, src: int = ANY, tag: int = ANY) -> Status:
        """Receive into x, contiguous and at least as long as the message.

        From ANY source the message that arrives first is taken.

        Raises:
            MessageMismatch: the message is longer than x.
            DeadlockError: nobody can ever send it (virtual world).
        """

    @abstractmethod
    def sendrecv(self, x: Array, dst: int, y: Array, src: int) -> None:
        """Send x to dst and receive y from src, at the same time, both under tag 0."""

    @abstractmethod
    def isend(self, x: Array, dst: int, tag: int = 0) -> Request:
        """Begin to send; x must stay as it is until the request's `wait`."""

    @abstractmethod
    def irecv(self, x: Array, src: int = ANY, tag: int = ANY) -> Request:
        """Begin to receive; x is filled when the request's `wait` returns."""

    def barrier(self) -> None:
        """Return when all ranks have called this: ceil(lg p) rounds of empty messages.

        In round k rank r tells r + 2**k and hears from r - 2**k, so after it r knows of 2**(k+1) ranks.

        Source: Hensgen, Finkel, Manber 1988, Int. J. Parallel Programming 17(1): dissemination.
        """
        nothing = np.empty(0, np.uint8)
        group = self.shadow
        distance = 1
        while distance < self.size:
            group.sendrecv(nothing, (self.rank + distance) % self.size, nothing, (self.rank - distance) % self.size)
            distance *= 2

    # -- groups ---------------------------------------------------------------------------------------

    @abstractmethod
    def split(self, color: int | None, key: int = 0) -> "Communicator | None":
        """The group of all ranks that gave the same color, ordered by (key, rank); None where color is None.

        Every rank of this group must call it.
        """

    @property
    @abstractmethod
    def shadow(self) -> "Communicator":
        """The same ranks, on which collectives talk: their messages never match the program's own."""

    @abstractmethod
    def stream(self, name: str) -> Stream:
        """A second stream of this rank. Every rank of the group must ask for it, in the same order."""

    @abstractmethod
    def agree(self, what: str) -> None:
        """Make sure that all ranks say the same `what` before going on; does nothing where `check` is off.

        Raises:
            CollectiveMismatch: on every rank, naming who said what.
        """

    @abstractmethod
    def exchange(self, note: str) -> list[str]:
        """Every rank's note, by rank: at most 1000 bytes each, outside the record. For sizes and set-up."""

    # -- time and memory ------------------------------------------------------------------------------

    @abstractmethod
    def clock(self) -> float:
        """Seconds since the job began, on a clock that all ranks share."""

    @abstractmethod
    def compute(self, seconds: float | None = None, flops: float = 0, bytes: float = 0, name: str = "compute") -> None:
        """Be busy for so long, or for as long as the device needs for so much; a real clock does not heed it."""

    @abstractmethod
    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """A new array in memory that peers on the node can reach directly, where the world has such.

        Every rank of the group must call it, in the same order; shapes may differ.
        """

    @contextmanager
    def span(self, name: str, num_bytes: int = 0, micro_batch: int = -1, detail: str = "") -> Iterator[None]:
        """Record what happens inside this block as one span, and name it in messages about waits."""
        outer, self.doing = self.doing, f"{self.doing} > {name}" if self.doing else name
        start_s = self.clock()
        try:
            yield
        finally:
            self.doing = outer
            self.recorder.add(
                self.stream_name, name, start_s, self.clock(), num_bytes, micro_batch=micro_batch, detail=detail
            )

    # -- checks ---------------------------------------------------------------------------------------

    def check_peer(self, role: str, rank: int) -> None:
        """Raise ArgumentError unless 0 <= rank < size; `role` says what the rank was given as."""
        if not 0 <= rank < self.size:
            raise ArgumentError(f"{role} {rank} on rank {self.rank}: this communicator has ranks 0 to {self.size - 1}")

    def check_split(self, color: object, key: object) -> None:
        """Raise ArgumentError unless color (where it is not None) and key are whole numbers."""
        for name, value in {"color": 0 if color is None else color, "key": key}.items():
            if not isinstance(value, (int, np.integer)):
                raise ArgumentError(f"{name} {value!r} on rank {self.rank}: needs a whole number")
