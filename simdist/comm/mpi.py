"""MPI: real ranks, over the upper-case buffer calls of mpi4py, which this file alone imports.

Arrays travel as the bytes they are, under MPI.BYTE: so every dtype of NumPy's does, and nothing is pickled.
Importing this file loads MPI; `join` starts it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from time import perf_counter, sleep
from typing import Any

import mpi4py
import numpy as np

from simdist import environment
from simdist.arrays import Array
from simdist.cluster import Cluster, preset
from simdist.comm.communicator import ANY, Communicator, Request, Status
from simdist.comm.guard import Guard
from simdist.comm.line import Line
from simdist.comm.mpi_errors import check_array, explain, too_long
from simdist.comm.mpi_group import NOTE_BYTES, MpiGroup
from simdist.comm.mpi_memory import MpiMemory, Windows
from simdist.comm.mpi_peers import MpiPeers
from simdist.comm.mpi_request import Receiving, Sending
from simdist.comm.thread_stream import ThreadStream
from simdist.errors import ArgumentError, MessageMismatch, WorldUnavailable
from simdist.trace import Recorder

__all__ = ["MPI", "MpiCommunicator"]

mpi4py.rc(initialize=False, finalize=True)  # to be said before MPI is loaded; `join` starts it
MPI: Any = import_module("mpi4py.MPI")
"""mpi4py's module, for those who help to set up the world."""

_BYTE = MPI.BYTE
_ERRORS = {
    MPI.ERR_TRUNCATE: "length",
    MPI.ERR_TAG: "tag",
    MPI.ERR_PROC_FAILED: "lost",
    MPI.ERR_PROC_FAILED_PENDING: "lost",
}


class MpiCommunicator(Communicator):
    """One rank's view of a group of real ranks.

    Around each call of MPI there is only what the watchdog and the record need: the name of the wait,
    cleared afterwards, and one row. Every wait has the watchdog's deadline.

    Args:
        group: the members.
        guard: what watches over this process.
        line: the stream that it is used on.
        recorder: where the spans go.
        zero_s: what this process's clock showed when the job's began.
        windows: of this process.
        owner: of a shadow, what it is the shadow of.
    """

    def __init__(
        self,
        group: MpiGroup,
        guard: Guard,
        line: Line,
        recorder: Recorder,
        zero_s: float,
        windows: Windows,
        cluster: Cluster | None = None,
        check: bool = True,
        owner: "MpiCommunicator | None" = None,
    ) -> None:
        self.rank = group.rank
        self.size = group.size
        self.ranks = group.ranks
        self.nodes = group.nodes
        self.num_nodes = len(set(group.nodes))
        self.context = group.context
        self.cluster = cluster or preset("this-machine")
        self.stream_name = line.name
        self.recorder = recorder
        self.check = check
        self.doing = ""
        self.attached: dict[str, Any] = {}
        self.guard = guard
        self.line = line
        self._group = group
        self._mpi = group.mpi
        self._zero_s = zero_s
        self._status = MPI.Status()
        self._memory = MpiMemory(group, windows, guard)
        self._shadow: MpiCommunicator | None = None
        self._owner = owner
        self._peers: MpiPeers | None = None
        self._own_mail: list[Sending] = []

    # -- messages -------------------------------------------------------------------------------------

    def send(self, x: Array, dst: int, tag: int = 0) -> None:
        """See Communicator. A small message is buffered; a large one waits until its receive is posted."""
        start_s = perf_counter()
        if not 0 <= dst < self.size:
            self.check_peer("dst", dst)
        if type(x) is not np.ndarray or not x.flags.c_contiguous or x.dtype.hasobject:
            check_array("send", x, self.rank)
        if dst == self.rank:
            self._send_to_self(x, tag)
            return
        line = self.line
        line.waiting = "send", self, dst, tag
        try:
            self._mpi.Send((x, _BYTE), dst, tag)
        except Exception as error:
            raise self._failure(error, "send", x, dst, tag) from None
        finally:
            line.waiting = None
        self.note("send", start_s, x.nbytes, dst, tag)

    def recv(self, x: Array, src: int = ANY, tag: int = ANY) -> Status:
        """See Communicator."""
        start_s = perf_counter()
        if type(x) is not np.ndarray or not x.flags.c_contiguous or x.dtype.hasobject:
            check_array("recv", x, self.rank)
        source = src
        if not 0 <= src < self.size:
            source = self._source(src)
        line, status = self.line, self._status
        line.waiting = "recv", self, src, tag
        try:
            self._mpi.Recv((x, _BYTE), source, MPI.ANY_TAG if tag == ANY else tag, status)
        except Exception as error:
            raise self._failure(error, "recv", x, src, tag) from None
        finally:
            line.waiting = None
        return self.received("recv", start_s, x, status)

    def sendrecv(self, x: Array, dst: int, y: Array, src: int) -> None:
        """See Communicator."""
        start_s = perf_counter()
        if not 0 <= dst < self.size or not 0 <= src < self.size:
            self.check_peer("dst", dst)
            self.check_peer("src", src)
        if type(x) is not np.ndarray or not x.flags.c_contiguous or x.dtype.hasobject:
            check_array("sendrecv", x, self.rank)
        if type(y) is not np.ndarray or not y.flags.c_contiguous or y.dtype.hasobject:
            check_array("sendrecv", y, self.rank)
        line, status = self.line, self._status
        line.waiting = "sendrecv", self, (dst, src), 0
        try:
            self._mpi.Sendrecv((x, _BYTE), dst, 0, (y, _BYTE), src, 0, status)
        except Exception as error:
            raise self._failure(error, "sendrecv", y, src, 0) from None
        finally:
            line.waiting = None
        line.count += 2
        num_bytes = status.Get_count(_BYTE)
        if num_bytes > y.nbytes:
            raise self._too_long("sendrecv", y, src)
        recorder = self.recorder
        if recorder.on:
            end_s = perf_counter() - self._zero_s
            start_s -= self._zero_s
            me, stream, context, ranks = recorder.rank, self.stream_name, self.context, self.ranks
            rows = recorder.rows
            rows.append((me, stream, "send", start_s, end_s, x.nbytes, ranks[dst], 0, context, -1, ""))
            rows.append((me, stream, "recv", start_s, end_s, num_bytes, ranks[src], 0, context, -1, ""))

    def isend(self, x: Array, dst: int, tag: int = 0) -> Sending:
        """See Communicator."""
        self.check_peer("dst", dst)
        check_array("isend", x, self.rank)
        start_s = perf_counter()
        try:
            request = self._mpi.Isend((x, _BYTE), dst, tag)
        except Exception as error:
            raise self._failure(error, "isend", x, dst, tag) from None
        return Sending(self, request, x, dst, tag, start_s)

    def irecv(self, x: Array, src: int = ANY, tag: int = ANY) -> Request:
        """See Communicator."""
        check_array("irecv", x, self.rank)
        source = self._source(src)
        start_s = perf_counter()
        try:
            request = self._mpi.Irecv((x, _BYTE), source, MPI.ANY_TAG if tag == ANY else tag)
        except Exception as error:
            raise self._failure(error, "irecv", x, src, tag) from None
        return Receiving(self, request, x, src, tag, start_s)

    def probe(self, tag: int = ANY, until_s: float = 0.0) -> bool:
        """See Communicator. Sleeps between two looks, at most a millisecond."""
        mpi_tag, pause_s = MPI.ANY_TAG if tag == ANY else tag, 1e-5
        while True:
            try:
                if self._mpi.Iprobe(MPI.ANY_SOURCE, mpi_tag):
                    return True
            except MPI.Exception as error:
                raise self._failure(error, "probe", None, ANY, tag) from None
            rest_s = until_s - self.clock()
            if rest_s <= 0:
                return False
            sleep(min(pause_s, rest_s))
            pause_s = min(2 * pause_s, 1e-3)

    def finish(self, what: str, request: Any, x: Array, peer: int, tag: int) -> Any:
        """Wait for a request under way."""
        status = MPI.Status()
        self.line.waiting = what, self, peer, tag
        try:
            request.Wait(status)
        except Exception as error:
            raise self._failure(error, what, x, peer, tag) from None
        finally:
            self.line.waiting = None
        return status

    def _send_to_self(self, x: Array, tag: int) -> None:
        """MPI need not keep a message to oneself until it is received; so this does."""
        start_s = perf_counter()
        kept = [sending for sending in self._own_mail if not sending.over]
        self._own_mail = [*kept, self.isend(x.copy(), self.rank, tag)]
        self.note("send", start_s, x.nbytes, self.rank, tag)

    def note(self, name: str, start_s: float, num_bytes: int, peer: int, tag: int) -> None:
        """Record a message that ends now."""
        self.line.count += 1
        recorder = self.recorder
        if recorder.on:
            start_s -= self._zero_s
            end_s = perf_counter() - self._zero_s
            me, stream, peer = recorder.rank, self.stream_name, self.ranks[peer]
            recorder.rows.append((me, stream, name, start_s, end_s, num_bytes, peer, tag, self.context, -1, ""))

    def received(self, what: str, start_s: float, x: Array, status: Any) -> Status:
        """Record a receive that ends now; what came, in simdist's words."""
        src, tag, num_bytes = status.Get_source(), status.Get_tag(), status.Get_count(_BYTE)
        if num_bytes > x.nbytes:  # Open MPI cuts off what a rank sends to itself without a word
            raise self._too_long(what, x, src)
        self.note("recv", start_s, num_bytes, src, tag)
        return Status(src, tag, num_bytes)

    # -- groups ---------------------------------------------------------------------------------------

    def split(self, color: int | None, key: int = 0) -> "MpiCommunicator | None":
        """See Communicator."""
        self.check_split(color, key)
        with self._together("split"):
            group = self._group.split(color, key)
        return None if group is None else self._kin(group, self.line)

    def free(self) -> None:
        """See Communicator.

        Raises:
            ArgumentError: this is the world, which lives until the job ends.
        """
        if self.context == "world":
            raise ArgumentError(f"the world cannot be freed on rank {self.rank}: it lives until the job ends")
        if self._group.mpi != MPI.COMM_NULL:
            with self._together("free"):
                self._group.free()

    @property
    def shadow(self) -> "MpiCommunicator":
        """See Communicator."""
        if self._shadow is None:
            self._shadow = self._twin(".collective", self.line, self)
            self._shadow.attached = self.attached
        self._shadow.doing = self.doing
        return self._shadow

    def stream(self, name: str) -> ThreadStream:
        """See Communicator. Its work is done by a thread, with communicators that no other thread uses."""
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise WorldUnavailable(f"a second stream on rank {self.rank}: this MPI lets one thread alone call it")
        line = self.guard.watchdog.line(name)
        stream = ThreadStream(self._twin(f".{name}", line), line, self.line)
        self.guard.drains.append(stream.drain)
        self._group.ends.append(lambda: self._end(stream, line))
        return stream

    def _end(self, stream: ThreadStream, line: Line) -> None:
        self.guard.drains.remove(stream.drain)
        stream.drain()
        self.guard.watchdog.lines.remove(line)

    def _twin(self, name: str, line: Line, owner: "MpiCommunicator | None" = None) -> "MpiCommunicator":
        """The same ranks, under another name and on a communicator of MPI's of its own."""
        with self._together(f"the making of {self.context + name!r}"):
            return self._kin(self._group.twin(name), line, owner)

    def _kin(self, group: MpiGroup, line: Line, owner: "MpiCommunicator | None" = None) -> "MpiCommunicator":
        rest = self._memory.windows, self.cluster, self.check, owner
        return MpiCommunicator(group, self.guard, line, self.recorder, self._zero_s, *rest)

    def agree(self, what: str, later: bool = False) -> None:
        """See Communicator. Costs one all-reduce of 16 bytes by MPI; a meeting once `peers` is there."""
        if self.check and self.size > 1:
            if self._peers is not None:
                self._peers.say(what)
                if not later:
                    self._peers.meet()
                return
            line = self.line
            line.waiting = what, self, None, 0
            try:
                self._group.agree(what)
            except MPI.Exception as error:
                raise self._failure(error, what, None, ANY, ANY) from None
            finally:
                line.waiting = None

    def exchange(self, note: str) -> list[str]:
        """See Communicator."""
        data = note.encode()
        if len(data) > NOTE_BYTES:
            raise ArgumentError(f"a note of {len(data)} bytes on rank {self.rank}; at most {NOTE_BYTES}")
        with self._together("an exchange of notes"):
            return self._group.notes(data)

    @contextmanager
    def _together(self, what: str) -> Iterator[None]:
        """For a set-up call of all ranks: see that all of them make it, and name it to the watchdog."""
        self.line.waiting = what, self, None, 0
        try:
            if self._peers is None:
                self._group.agree(what)
            else:
                self._peers.say(what)
                self._peers.meet()
            yield
        except MPI.Exception as error:
            raise self._failure(error, what, None, ANY, ANY) from None
        finally:
            self.line.waiting = None

    # -- the death of other ranks ---------------------------------------------------------------------

    def survive(self) -> bool:
        """See Communicator. Open MPI can, where the job was started by `mpirun --with-ft ulfm`."""
        self.guard.watchdog.survives = environment.survives_deaths()
        return self.guard.watchdog.survives

    def lost(self) -> list[int]:
        """See Communicator."""
        if not self.guard.watchdog.survives:
            return []
        self._mpi.Ack_failed()
        failed = self._mpi.Get_failed()
        return sorted(MPI.Group.Translate_ranks(failed, None, self._mpi.Get_group()))

    # -- time and memory ------------------------------------------------------------------------------

    def clock(self) -> float:
        """Seconds since the job began."""
        return perf_counter() - self._zero_s

    def compute(self, seconds: float | None = None, flops: float = 0, bytes: float = 0, name: str = "compute") -> None:
        """Nothing: here computing takes the time that it takes."""

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator. A window of MPI's over the node's ranks, which lives until the job ends."""
        with self._together("empty"):
            return self._memory.empty(shape, dtype)

    def shared(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator. A window of MPI's, which lives until the job ends."""
        self.check_shared(dtype)
        with self._together(f"shared of shape {shape} and dtype {np.dtype(dtype)}"):
            return self._memory.shared(shape, dtype)

    def fence(self) -> None:
        """See Communicator. A barrier to the memory of this process."""
        self._memory.fence()

    def peers(self) -> MpiPeers:
        """See Communicator. A communicator has them in common with its shadow, on which collectives talk."""
        if self._peers is None:
            if self._owner is None:
                self._peers = self.shadow.peers()
            else:
                self.check_one_node()
                with self._together("the making of peers"):
                    self._peers = MpiPeers(self, self._memory, self._owner.context)
                self._group.ends.append(self._peers.end)
                self._owner._peers = self._peers
        return self._peers

    @property
    def num_messages(self) -> int:
        """See Communicator."""
        return self.line.count

    # -- errors ---------------------------------------------------------------------------------------

    def abort(self, code: int) -> None:
        """End the whole job at once with this exit code; does not return."""
        self.guard.end(code)

    def _source(self, src: int) -> int:
        """The source as MPI calls it."""
        if src == ANY:
            any_source: int = MPI.ANY_SOURCE
            return any_source
        self.check_peer("src", src)
        return src

    def _too_long(self, what: str, x: Array, src: int) -> MessageMismatch:
        return too_long(f"{what} on rank {self.rank} of {self.context!r}", x, src)

    def _failure(self, error: Exception, what: str, x: Array, peer: int, tag: int) -> Exception:
        """What MPI or mpi4py raised, in simdist's words."""
        kind = ""
        if isinstance(error, MPI.Exception):
            kind = _ERRORS.get(error.Get_error_class(), "other")
        return explain(error, kind, f"{what} on rank {self.rank} of {self.context!r}", x, peer, tag)
