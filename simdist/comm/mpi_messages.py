"""Messages between real ranks, by the upper-case buffer calls of mpi4py.

Arrays are sent as plain bytes, as MPI.BYTE: so every dtype of NumPy works, and nothing is pickled.
"""

from functools import cached_property
from math import inf
from time import perf_counter, sleep
from typing import Any

from simdist.arrays import Array, kind_of
from simdist.comm.bindings import MPI
from simdist.comm.communicator import ANY, Communicator
from simdist.comm.guard import Guard
from simdist.comm.line import Line
from simdist.comm.mpi_errors import check_array, explain, is_plain, too_long
from simdist.comm.mpi_group import MpiGroup
from simdist.comm.mpi_request import Receiving, Sending
from simdist.comm.request import Request, Status
from simdist.comm.staging import Staging, ready
from simdist.errors import ArrayError
from simdist.trace import Recorder

__all__ = ["MpiMessages"]

_BYTE = MPI.BYTE
_ERRORS = {
    MPI.ERR_TRUNCATE: "length",
    MPI.ERR_TAG: "tag",
    MPI.ERR_PROC_FAILED: "lost",
    MPI.ERR_PROC_FAILED_PENDING: "lost",
}


class MpiMessages(Communicator):
    """The part of a communicator that sends and receives.

    Each MPI call is wrapped only in what the watchdog and the record need: a note of the wait, cleared afterwards, and
    one row. Every wait has the watchdog's deadline.

    Args:
        group: the members.
        guard: the guard of this process.
        line: the stream that uses it.
        recorder: where the spans go.
        zero_s: this process's clock at the zero of the job's clock.
    """

    _owner: Any = None

    def __init__(self, group: MpiGroup, guard: Guard, line: Line, recorder: Recorder, zero_s: float) -> None:
        self.rank = group.rank
        self.size = group.size
        self.ranks = group.ranks
        self.nodes = group.nodes
        self.context = group.context
        self.stream_name = line.name
        self.recorder = recorder
        self.doing = ""
        self.attached: dict[str, Any] = {}
        self.guard = guard
        self.line = line
        self._group = group
        guard.groups.add(group)
        self._mpi = group.mpi
        self._zero_s = zero_s
        self._status = MPI.Status()
        self._own_mail: list[Request] = []

    def send(self, x: Array, dst: int, tag: int = 0) -> None:
        """See Communicator. A small message is buffered; a large one waits until its receive is posted."""
        start_s = perf_counter()
        if type(dst) is not int or not 0 <= dst < self.size:
            self.check_peer("dst", dst)
        self.check_tag("send", tag)
        if not is_plain(x):
            check_array("send", x, self.rank)
            if self._staged(x):
                return self._send_to_self(x, tag) if dst == self.rank else self._staging.send(x, dst, tag)
            x = self._ready(x)
        if dst == self.rank:
            self._send_to_self(x, tag)
            return None
        line = self.line
        line.waiting = "send", self, dst, tag
        try:
            self._mpi.Send((x, _BYTE), dst, tag)
        except Exception as error:
            raise self.failure(error, "send", x, dst, tag) from None
        finally:
            line.waiting = None
        self.note("send", start_s, x.nbytes, dst, tag)

    def recv(self, x: Array, src: int = ANY, tag: int = ANY) -> Status:
        """See Communicator.

        Open MPI (5.0.11) writes all of a long message, also beyond the end of a shorter x, before it reports the
        error, and the process may then crash: above 4 KB where it copies directly between processes (CMA), which
        OMPI_MCA_smsc=^cma turns off, at a cost in bandwidth; above 1 KB always for a message to the rank itself.
        """
        start_s = perf_counter()
        self.check_wanted("recv", tag)
        if not is_plain(x):
            check_array("recv", x, self.rank)
            if self._staged(x):
                return self._staging.recv(x, src, tag)
            x = self._ready(x)
        source = src
        if type(src) is not int or not 0 <= src < self.size:
            source = self._source(src)
        line, status = self.line, self._status
        line.waiting = "recv", self, src, tag
        try:
            self._mpi.Recv((x, _BYTE), source, MPI.ANY_TAG if tag == ANY else tag, status)
        except Exception as error:
            raise self.failure(error, "recv", x, src, tag) from None
        finally:
            line.waiting = None
        return self.received(start_s, x, status)

    def sendrecv(self, x: Array, dst: int, y: Array, src: int) -> None:
        """See Communicator."""
        start_s = perf_counter()
        if type(dst) is not int or type(src) is not int or not 0 <= dst < self.size or not 0 <= src < self.size:
            self.check_peer("dst", dst)
            self.check_peer("src", src)
        if x is y or self._owner is None:  # algorithms' own messages are too many to look at
            self.check_apart(x, y)
        if not is_plain(x):
            check_array("sendrecv", x, self.rank)
            if self._staged(x) and self._staged(y):
                check_array("sendrecv", y, self.rank)
                return self._staging.sendrecv(x, dst, y, src)
            x = self._ready(x)
        if not is_plain(y):
            check_array("sendrecv", y, self.rank)
            y = self._ready(y)
        line, status = self.line, self._status
        line.waiting = "sendrecv", self, (dst, src), 0
        try:
            self._mpi.Sendrecv((x, _BYTE), dst, 0, (y, _BYTE), src, 0, status)
        except Exception as error:
            raise self.failure(error, "sendrecv", y, src, 0) from None
        finally:
            line.waiting = None
        line.count += 2
        num_bytes = self.length(status, "sendrecv", y, src)
        recorder = self.recorder
        if recorder.on:
            end_s = perf_counter() - self._zero_s
            start_s -= self._zero_s
            me, stream, context, ranks = recorder.rank, self.stream_name, self.context, self.ranks
            rows = recorder.rows
            rows.append((me, stream, "send", start_s, end_s, x.nbytes, ranks[dst], 0, context, -1, ""))
            rows.append((me, stream, "recv", start_s, end_s, num_bytes, ranks[src], 0, context, -1, ""))

    def isend(self, x: Array, dst: int, tag: int = 0) -> Request:
        """See Communicator."""
        self.check_peer("dst", dst)
        self.check_tag("isend", tag)
        check_array("isend", x, self.rank)
        if self._staged(x):
            request: Request = self._staging.isend(x, dst, tag)
        else:
            x, start_s = self._ready(x), perf_counter()
            request = Sending(self, [self.post("isend", x, dst, tag)], x, dst, tag, start_s)
        self.guard.open[request] = "isend", self, dst, tag
        return request

    def irecv(self, x: Array, src: int = ANY, tag: int = ANY) -> Request:
        """See Communicator."""
        check_array("irecv", x, self.rank)
        self.check_wanted("irecv", tag)
        if self._staged(x):
            request: Request = self._staging.irecv(x, src, tag)
        else:
            x, start_s = self._ready(x), perf_counter()
            request = Receiving(self, self.post("irecv", x, src, tag), x, src, tag, start_s)
        self.guard.open[request] = "irecv", self, src, tag
        return request

    def post(self, what: str, x: Array, peer: int, tag: int) -> Any:
        """Start an "isend" or "irecv" of an array that MPI accepts: returns MPI's request."""
        source = self._source(peer)
        try:
            if what == "isend":
                return self._mpi.Isend((x, _BYTE), peer, tag)
            return self._mpi.Irecv((x, _BYTE), source, MPI.ANY_TAG if tag == ANY else tag)
        except Exception as error:
            raise self.failure(error, what, x, peer, tag) from None

    def probe(self, tag: int = ANY, until_s: float = 0.0) -> bool:
        """See Communicator. Polls, with sleeps of at most a millisecond in between."""
        self.check_probe(tag, until_s)
        mpi_tag, pause_s = MPI.ANY_TAG if tag == ANY else tag, 1e-5
        self.line.waiting = ("recv", self, ANY, tag) if until_s == inf else None  # otherwise until_s ends it
        try:
            while not self._mpi.Iprobe(MPI.ANY_SOURCE, mpi_tag):
                rest_s = until_s - self.clock()
                if rest_s <= 0:
                    return False
                sleep(min(pause_s, rest_s))
                pause_s = min(2 * pause_s, 1e-3)
            return True
        except MPI.Exception as error:
            raise self.failure(error, "probe", None, ANY, tag) from None
        finally:
            self.line.waiting = None

    def finish(self, what: str, request: Any, x: Array, peer: int, tag: int) -> Any:
        """Wait for an MPI request."""
        status = MPI.Status()
        self.line.waiting = what, self, peer, tag
        try:
            request.Wait(status)
        except Exception as error:
            raise self.failure(error, what, x, peer, tag) from None
        finally:
            self.line.waiting = None
        return status

    def _staged(self, x: Array) -> bool:
        """Whether x is on a device, and MPI does not accept device memory."""
        return self.device.path != "cuda-aware" and kind_of(x) == "cupy"

    def _ready(self, x: Array) -> Array:
        """x in the form that MPI accepts."""
        if self._staged(x):  # only one of the two arrays of a sendrecv is on the device
            raise ArrayError(f"a message on rank {self.rank} with one array on the device and one on the host")
        return ready(x) if kind_of(x) == "cupy" else x

    @cached_property
    def _staging(self) -> Staging:
        return Staging(self)

    def _send_to_self(self, x: Array, tag: int) -> None:
        """Keep a copy at least until it is received: MPI need not buffer a message that a rank sends to itself."""
        start_s = perf_counter()
        kept = [sending for sending in self._own_mail if not sending.over]
        sending = self.isend(x.copy(), self.rank, tag)
        del self.guard.open[sending]  # it counts as sent, as all that `send` sends
        self._own_mail = [*kept, sending]
        self.note("send", start_s, x.nbytes, self.rank, tag)

    def note(self, name: str, start_s: float, num_bytes: int, peer: int, tag: int) -> None:
        """Record a message that is complete now."""
        self.line.count += 1
        recorder = self.recorder
        if recorder.on:
            start_s -= self._zero_s
            end_s = perf_counter() - self._zero_s
            me, stream, peer = recorder.rank, self.stream_name, self.ranks[peer]
            recorder.rows.append((me, stream, name, start_s, end_s, num_bytes, peer, tag, self.context, -1, ""))

    def received(self, start_s: float, x: Array, status: Any) -> Status:
        """Record a receive that is complete now, and return its status."""
        src, tag = status.Get_source(), status.Get_tag()
        num_bytes = self.length(status, "recv", x, src)
        self.note("recv", start_s, num_bytes, src, tag)
        return Status(src, tag, num_bytes)

    def length(self, status: Any, what: str, x: Array, src: int) -> int:
        """The bytes of a message received into x; raises MessageMismatch if it was longer."""
        num_bytes: int = status.Get_count(_BYTE)
        if num_bytes > x.nbytes:  # Open MPI silently truncates a message that a rank sends to itself
            raise too_long(f"{what} on rank {self.rank} of {self.context!r}", x, src)
        return num_bytes

    def clock(self) -> float:
        """Seconds since the job began."""
        return perf_counter() - self._zero_s

    @property
    def num_messages(self) -> int:
        """See Communicator."""
        return self.line.count

    # -- errors ---------------------------------------------------------------------------------------

    def _source(self, src: int) -> int:
        """The source in MPI's terms."""
        any_source: int = MPI.ANY_SOURCE
        return any_source if self.check_source(src) else src

    def failure(self, error: Exception, what: str, x: Array, peer: int, tag: int) -> Exception:
        """An error of MPI or mpi4py as simdist's exception."""
        kind = ""
        if isinstance(error, MPI.Exception):
            kind = _ERRORS.get(error.Get_error_class(), "other")
        return explain(error, kind, f"{what} on rank {self.rank} of {self.context!r}", x, peer, tag)
