"""MPI: the communicator of real ranks: groups, streams, and shared memory of a node."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from simdist import environment
from simdist.arrays import Array, empty
from simdist.cluster import Cluster
from simdist.comm.bindings import MPI
from simdist.comm.communicator import ANY
from simdist.comm.device import Finding
from simdist.comm.device_probe import aware_of_cuda, opens_memory
from simdist.comm.guard import Guard
from simdist.comm.line import Line
from simdist.comm.mpi_group import MpiGroup
from simdist.comm.mpi_memory import MpiMemory, Windows
from simdist.comm.mpi_messages import MpiMessages
from simdist.comm.mpi_peers import MpiPeers
from simdist.comm.request import Status
from simdist.comm.thread_stream import ThreadStream, running_stream
from simdist.errors import WorldUnavailable
from simdist.trace import Recorder

__all__ = ["MpiCommunicator"]


class MpiCommunicator(MpiMessages):
    """One rank's view of a group of real ranks.

    Args:
        group, guard, line, recorder, zero_s: see MpiMessages.
        windows: of this process.
        cluster, check: see Communicator.
        owner: of a shadow, its communicator.
    """

    def __init__(
        self,
        group: MpiGroup,
        guard: Guard,
        line: Line,
        recorder: Recorder,
        zero_s: float,
        windows: Windows,
        cluster: Cluster,
        check: bool = True,
        owner: "MpiCommunicator | None" = None,
    ) -> None:
        super().__init__(group, guard, line, recorder, zero_s)
        self.cluster = cluster
        self.check = check
        self._memory = MpiMemory(group, windows, guard)
        self._shadow: MpiCommunicator | None = None
        self._owner = owner
        self._peers: MpiPeers | None = None

    # -- groups ---------------------------------------------------------------------------------------

    def split(self, color: int | None, key: int = 0) -> "MpiCommunicator | None":
        """See Communicator."""
        self.check_split(color, key)
        with self._together("split"):
            group = self._group.split(color, key)
        return None if group is None else self._kin(group, self.line)

    def free(self) -> None:
        """See Communicator."""
        super().free()
        if self._group.mpi != MPI.COMM_NULL:
            with self._together("free"):
                self._group.free()

    @property
    def shadow(self) -> "MpiCommunicator":
        """See Communicator."""
        if self._shadow is None:
            self._shadow = self._twin(".collective", self.line, "the first collective", self)
            self._shadow.attached = self.attached
        self._shadow.doing, self._shadow.entered = self.doing, self.entered
        self._shadow.device = self.device
        return self._shadow

    def stream(self, name: str) -> ThreadStream:
        """See Communicator. A thread does its work, with communicators that no other thread uses."""
        self.check_stream(name)
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise WorldUnavailable(f"a second stream on rank {self.rank}: this MPI supports calls from one thread only")
        line = self.guard.watchdog.line(name)
        stream = ThreadStream(self._twin(f".{name}", line, f"stream {name!r}"), line, self.line)
        self.guard.drains.append(stream.drain)
        self._group.ends.append(lambda: self._end(stream, line))
        return stream

    def _end(self, stream: ThreadStream, line: Line) -> None:
        self.guard.drains.remove(stream.drain)
        stream.drain()
        self.guard.watchdog.lines.remove(line)

    def _twin(self, name: str, line: Line, what: str, owner: "MpiCommunicator | None" = None) -> "MpiCommunicator":
        """The same ranks, under another name and on a new MPI communicator; what makes it, for messages about waits."""
        with self._together(what):
            return self._kin(self._group.twin(name), line, owner)

    def _kin(self, group: MpiGroup, line: Line, owner: "MpiCommunicator | None" = None) -> "MpiCommunicator":
        rest = self._memory.windows, self.cluster, self.check, owner
        kin = MpiCommunicator(group, self.guard, line, self.recorder, self._zero_s, *rest)
        kin.device = self.device
        return kin

    def agree(self, what: str, later: bool = False) -> None:
        """See Communicator. Costs one MPI all-reduce of 16 bytes; once `peers` exists, one meeting instead."""
        if self.check and self.size > 1:
            self.check_caller(what, running_stream(self.line))
            if later and self._peers is not None:
                self._peers.say(what)
            else:
                with self._together(what):
                    pass

    def exchange(self, note: str, what: str = "an exchange of notes") -> list[str]:
        """See Communicator."""
        data = self.check_note(note)
        with self._together(what):
            return self._group.notes(data)

    @contextmanager
    def _together(self, what: str) -> Iterator[None]:
        """Around what all ranks do together: check that all of them do it, and name it to the watchdog."""
        self.line.waiting = what, self, None, 0
        try:
            if self._peers is None:
                self._group.agree(what)
            else:
                self._peers.say(what)
                self._peers.meet()
            yield
        except MPI.Exception as error:
            raise self.failure(error, what, None, ANY, ANY) from None
        finally:
            self.line.waiting = None

    def come(self, src: int) -> Status | None:
        """The first message from src, or ANY, that no receive has taken; None if there is none. Any thread may ask."""
        status = MPI.Status()
        with suppress(MPI.Exception):  # because of a death
            if MPI.Query_thread() == MPI.THREAD_MULTIPLE and self._mpi.Iprobe(self._source(src), MPI.ANY_TAG, status):
                return Status(status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE))
        return None

    # -- the death of other ranks ---------------------------------------------------------------------

    def survive(self) -> bool:
        """See Communicator. Open MPI supports it in jobs started by `mpirun --with-ft ulfm`."""
        self.guard.watchdog.survives = environment.survives_deaths()
        return self.guard.watchdog.survives

    def lost(self) -> list[int]:
        """See Communicator."""
        if not self.guard.watchdog.survives:
            return []
        with suppress(MPI.Exception):  # because of a death
            self._mpi.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)  # MPI hears of deaths only while it looks for messages
        self._mpi.Ack_failed()
        return sorted(self._group.members(self._mpi.Get_failed()))

    def survivors(self) -> "MpiCommunicator":
        """See Communicator."""
        if not self.guard.watchdog.survives:
            return self
        self.line.waiting = "survivors", self, None, 0
        try:
            group = self._group.shrunk()
        finally:
            self.line.waiting = None
        return self if group is None else self._kin(group, self.line)

    # -- time and memory ------------------------------------------------------------------------------

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator. An MPI window over the node's ranks, which exists until `free` or the end of the job."""
        self.check_new("empty", shape, dtype)
        with self._together("empty"):
            if self.device.path == "ipc" and self.num_nodes == 1:
                return self._memory.device_empty(self, shape, dtype)
            if self.device.kind != "numpy":
                return empty(self.device.kind, shape, dtype)
            return self._memory.empty(shape, dtype)

    def shared(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """See Communicator. An MPI window, which exists until `free` or the end of the job."""
        self.check_new("shared", shape, dtype)
        with self._together(f"shared of shape {shape} and dtype {np.dtype(dtype)}"):
            return self._memory.shared(shape, dtype)

    def device_paths(self) -> dict[str, Callable[[], Finding]]:
        """See Communicator."""
        if self.size == 1:
            return super().device_paths()
        return {
            "ipc": lambda: opens_memory(self),
            "cuda-aware": lambda: aware_of_cuda(self, MPI, self._mpi),
            "staged": lambda: Finding(True, "arrays are copied to the host and back for each message"),
        }

    def fence(self) -> None:
        """See Communicator. A memory barrier of this process."""
        self._memory.fence()

    def peers(self) -> MpiPeers:
        """See Communicator. A communicator shares them with its shadow, which collectives use."""
        if self._peers is None:
            self.check_one_node()
            if self._owner is None:
                self._peers = self.shadow.peers()
            else:
                with self._together("the making of peers"):
                    self._peers = MpiPeers(self, self._memory, self._owner.context)
                self._group.ends.append(self._peers.end)
                self._owner._peers = self._peers
        return self._peers
