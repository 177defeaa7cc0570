"""Solo: a world of one rank, without MPI."""

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from time import perf_counter, sleep
from typing import Any

import numpy as np

from simdist.arrays import Array, empty
from simdist.cluster import preset
from simdist.comm.communicator import ANY, Communicator
from simdist.comm.device import HOST
from simdist.comm.line import Line
from simdist.comm.mpi_errors import check_array, too_long
from simdist.comm.open_requests import with_tag
from simdist.comm.peers import Peers, Views
from simdist.comm.placement import Placement
from simdist.comm.request import Request, Status
from simdist.comm.thread_stream import ThreadStream
from simdist.errors import DeadlockError
from simdist.trace import Recorder

__all__ = ["SoloCommunicator"]


class SoloCommunicator(Communicator):
    """The communicator of a world of one rank, which can send messages to itself.

    Args:
        line: the stream that uses it.
        parent: the communicator that it is made from; None for the world.
        context: its name.
    """

    rank = 0
    size = 1
    ranks: Sequence[int] = (0,)
    nodes = Placement([0])

    def __init__(
        self, line: Line | None = None, parent: "SoloCommunicator | None" = None, context: str = "world"
    ) -> None:
        self.line = line or Line("main")
        self.cluster = parent.cluster if parent else preset("this-machine")
        self.recorder = parent.recorder if parent else Recorder(0)
        self.check = parent.check if parent else True
        self.device = parent.device if parent else HOST
        self.context = context
        self.stream_name = self.line.name
        self.doing = ""
        self.attached: dict[str, Any] = {}
        self._zero_s: float = parent._zero_s if parent else perf_counter()
        self._mail: list[tuple[int, Array]] = []  # sent and not yet received: tag and data
        self._shadow: SoloCommunicator | None = None
        self._splits = 0
        self._streams: dict[str, int] = {}  # how many, by name

    # -- messages -------------------------------------------------------------------------------------

    def sendrecv(self, x: Array, dst: int, y: Array, src: int) -> None:
        """See Communicator."""
        self.check_peer("src", src)
        check_array("sendrecv", y, 0)
        self.check_exchange(x, y)  # before x is sent, which nobody would receive
        self.send(x, dst)
        self.recv(y, src, 0)

    def isend(self, x: Array, dst: int, tag: int = 0) -> Request:
        """See Communicator. The message is kept until it is received."""
        self.check_peer("dst", dst)
        check_array("send", x, 0)
        self.check_tag("send", tag)
        start_s = self.clock()
        self._mail.append((tag, x.copy()))
        self._note("send", start_s, x.nbytes, tag)
        request = _Deferred(partial(Status, dst, tag, x.nbytes))
        request.wait()  # nothing is left to do
        return request

    def irecv(self, x: Array, src: int = ANY, tag: int = ANY) -> Request:
        """See Communicator. The message is received by `wait`."""
        self.check_source(src)
        check_array("recv", x, 0)
        self.check_room("recv", x, tag)
        start_s = self.clock()
        return _Deferred(partial(self._take, x, tag, start_s))

    def probe(self, tag: int = ANY, until_s: float = 0.0) -> bool:
        """See Communicator."""
        self.check_probe(tag, until_s)
        there = self._oldest(tag) is not None
        if not there:
            if until_s == inf:
                raise self._deadlock(tag)
            sleep(max(0.0, until_s - self.clock()))
        return there

    def _take(self, x: Array, tag: int, start_s: float) -> Status:
        """Receive the oldest message with this tag into x."""
        i = self._oldest(tag)
        if i is None:
            raise self._deadlock(tag)
        sent, data = self._mail.pop(i)
        if data.nbytes > x.nbytes:
            raise too_long(f"recv on rank 0 of {self.context!r}", x, 0)
        x.reshape(-1).view(np.uint8)[: data.nbytes] = data.reshape(-1).view(np.uint8)
        self._note("recv", start_s, data.nbytes, sent)
        return Status(0, sent, data.nbytes)

    def _oldest(self, tag: int) -> int | None:
        """The index of the oldest message with this tag; None if there is none."""
        return next((i for i, (sent, _) in enumerate(self._mail) if tag in (sent, ANY)), None)

    def _deadlock(self, tag: int) -> DeadlockError:
        return DeadlockError(f"rank 0 waits for a message{with_tag(tag)} from itself, the only rank, and has sent none")

    def _note(self, name: str, start_s: float, num_bytes: int, tag: int) -> None:
        self.recorder.add(self.stream_name, name, start_s, self.clock(), num_bytes, 0, tag, self.context)

    # -- groups ---------------------------------------------------------------------------------------

    def split(self, color: int | None, key: int = 0) -> "SoloCommunicator | None":
        """See Communicator."""
        self.check_split(color, key)
        self._splits += 1
        if color is None:
            return None
        return SoloCommunicator(self.line, self, f"{self.context}/{self._splits}:{int(color)}")

    @property
    def shadow(self) -> "SoloCommunicator":
        """See Communicator."""
        if self._shadow is None:
            self._shadow = SoloCommunicator(self.line, self, f"{self.context}.collective")
            self._shadow.attached = self.attached
        self._shadow.doing = self.doing
        self._shadow.device = self.device
        return self._shadow

    def stream(self, name: str) -> ThreadStream:
        """See Communicator."""
        self.check_stream(name)
        line = Line(name)
        number = self._streams[name] = self._streams.get(name, 0) + 1
        number += name == "collective"  # the name of the shadow
        context = f"{self.context}.{name}" + (f" {number}" if number > 1 else "")
        stream = ThreadStream(SoloCommunicator(line, self, context), line, self.line)
        atexit.register(_finish, stream)  # without this the process would end in the middle of its work
        return stream

    def agree(self, what: str, later: bool = False) -> None:
        """Does nothing: there is no other rank to disagree."""

    def exchange(self, note: str, what: str = "an exchange of notes") -> list[str]:
        """See Communicator."""
        self.check_note(note)
        return [note]

    # -- time and memory ------------------------------------------------------------------------------

    def clock(self) -> float:
        """See Communicator. The zero is the creation of this world."""
        return perf_counter() - self._zero_s

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator."""
        self.check_new("empty", shape, dtype)
        return empty(self.device.kind, shape, dtype)

    def shared(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator."""
        self.check_new("shared", shape, dtype)
        return np.zeros(shape, dtype)

    def fence(self) -> None:
        """Does nothing: no other rank writes."""

    def peers(self) -> "SoloPeers":
        """See Communicator."""
        return SoloPeers(self)


class SoloPeers(Peers):
    """The only rank of its node: every view is its own array."""

    def meet(self) -> None:
        """Does nothing: there is no other rank to meet."""

    def show(self, x: Array, ahead: bool = False) -> Views | None:
        """See Peers."""
        return Views([x])

    def post(self, *parts: Array) -> Sequence[Array]:
        """See Peers."""
        return [np.concatenate(parts)]


@dataclass(eq=False, repr=False)
class _Deferred(Request):
    """A request that does in `wait` what is left to do."""

    _rest: Callable[[], Status]

    def _finish(self) -> Status:
        return self._rest()


def _finish(stream: ThreadStream) -> None:
    """Wait for a stream's work at the end of the process; its error ends the process as one of the program does."""
    try:
        stream.drain()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        for output in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # the program may have replaced or closed it
                output.flush()
        os._exit(1)  # an exception would be ignored here
