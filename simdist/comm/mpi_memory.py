"""Memory that the real ranks of a node share: MPI windows, and the places of arrays in them."""

import gc
import sys
import warnings
from bisect import bisect_right, insort
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, phantom
from simdist.arrays.kind import address
from simdist.comm.bindings import MPI
from simdist.comm.checks import cut
from simdist.comm.communicator import Communicator
from simdist.comm.device_memory import DevicePeers, DeviceWindow
from simdist.comm.guard import Guard
from simdist.comm.mpi_group import MpiGroup
from simdist.comm.shared_room import REMEDY, SHARED, room
from simdist.errors import SharedMemoryFull

__all__ = ["MpiMemory", "Place", "Window", "Windows"]

_start = attrgetter("start")
_LINE_BYTES = 64
_GAP_BYTES = 1 << 12
_SPARE_BYTES = 1 << 24  # left free by arrays, which can use private memory instead, for peers, which cannot


class Window:
    """Shared memory in which each rank of a node has a part that all of them can access.

    Args:
        mpi: the MPI communicator of the ranks, all of which must call this.
        ranks: their global ranks.
        name: the same on all of them, and unique among their windows.
        num_bytes: of this rank's part. It is rounded up to whole cache lines, so that no two ranks write to the same
            one. A gap follows each part: otherwise a processor that prefetches would fetch lines that another writes.
    """

    def __init__(self, mpi: Any, ranks: list[int], name: str, num_bytes: int) -> None:
        self.name = name
        self._mpi = mpi
        whole = -(-num_bytes // _LINE_BYTES) * _LINE_BYTES
        self._window = MPI.Win.Allocate_shared(whole + _GAP_BYTES if whole else 0, 1, comm=mpi)
        self._window.Lock_all(MPI.MODE_NOCHECK)  # until it is freed: MPI allows Sync only under a lock
        self.sync = self._window.Sync
        self.parts = {rank: self._part(i) for i, rank in enumerate(ranks)}
        mine = self.parts[ranks[mpi.Get_rank()]]
        self.start = address(mine)
        self.end = self.start + len(mine)
        del mine
        self._references = self._count_references()

    def _part(self, i: int) -> Array:
        """The part of member i as bytes."""
        memory, _ = self._window.Shared_query(i)
        return np.frombuffer(memory, np.uint8, memory.nbytes - _GAP_BYTES) if memory.nbytes else np.empty(0, np.uint8)

    def _count_references(self) -> int:
        """The references to all parts: each array in a part holds one."""
        return sum(map(sys.getrefcount, self.parts.values()))

    def in_use(self) -> bool:
        """Whether any of its ranks still has arrays in it; all of them must call this."""
        mine, every = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
        if self._count_references() > self._references:
            gc.collect()  # some may be referenced only by cycles
            mine[0] = self._count_references() > self._references
        self._mpi.Allreduce(mine, every)
        return bool(every[0])

    def free(self) -> None:
        """Free it; all of its ranks must call this."""
        self.parts.clear()
        self._window.Unlock_all()
        self._window.Free()


class Place(NamedTuple):
    """Where an array is: its window, and its offset in its rank's part."""

    window: Window | DeviceWindow
    offset: int


class Windows:
    """The windows of this process, by address.

    Attributes:
        num_bytes: the sum of this process's parts.
        num_removed: how many windows were removed so far.
    """

    def __init__(self) -> None:
        self._address = MPI.Get_address  # ten times as fast as the array's own attributes
        self._windows: list[Window | DeviceWindow] = []  # by address
        self._names: dict[str, int] = {}
        self.num_bytes = self.num_removed = 0

    def name(self, context: str) -> str:
        """A name for a group's next window, the same on all its ranks."""
        number = self._names[context] = self._names.get(context, 0) + 1
        return f"{context} {number}"

    def add(self, window: Window | DeviceWindow) -> None:
        """Register a window."""
        insort(self._windows, window, key=_start)  # at once, as another stream may be looking for a place
        self.num_bytes += window.end - window.start

    def remove(self, window: Window | DeviceWindow) -> None:
        """Unregister a window."""
        self._windows.remove(window)
        self.num_removed += 1
        self.num_bytes -= window.end - window.start

    def address(self, x: Array) -> int:
        """The address of an array's memory."""
        try:
            return int(self._address(x))
        except (BufferError, TypeError, ValueError):  # dtypes without a buffer format
            return address(x)

    def place(self, start: int, num_bytes: int) -> Place | None:
        """The place of num_bytes at an address; None if they are not entirely in one window."""
        i = bisect_right(self._windows, start, key=_start) - 1
        if i < 0:
            return None
        window = self._windows[i]
        return Place(window, start - window.start) if start + num_bytes <= window.end else None


class MpiMemory:
    """The memory that a group's ranks on this node share.

    Args:
        group: the ranks.
        windows: of this process.
        guard: frees the windows at the end of the job.
    """

    def __init__(self, group: MpiGroup, windows: Windows, guard: Guard) -> None:
        self.windows = windows
        self._group = group
        self._guard = guard
        self._me = group.ranks[group.rank]
        self._ranks = [group.ranks[r] for r in group.nodes.neighbours(group.rank)]
        self._neighbours: Any = group.mpi if len(self._ranks) == group.size else None
        self._common: list[Window] = []

    def window(self, num_bytes: int) -> Window:
        """A new window, with num_bytes for this rank. All ranks of the group must call it.

        Raises:
            SharedMemoryFull: a node has no room for it; on all ranks.
        """
        for lack in self._group.notes(cut(self._lack(num_bytes)).encode()):
            if lack:
                raise SharedMemoryFull(lack)
        return self._window(num_bytes)

    def _lack(self, num_bytes: int, spare_bytes: int = 0) -> str:
        """What the node lacks for this rank to share num_bytes more and still leave spare_bytes free; empty if nothing.

        The same on all ranks of the node, which must all call it.
        """
        group = self._group
        if self._neighbours is None:
            self._neighbours = group.mpi.Split(group.nodes[group.rank], group.rank)
            group.memory_ends.append(self._neighbours.Free)
        # Read by one rank only: readings at different times may differ.
        there = room() if self._is_first() else (0.0, 0.0)
        mine, every = np.array([num_bytes, self.windows.num_bytes, *there], np.float64), np.empty(4)
        self._neighbours.Allreduce(mine, every)
        more, shared, free, total = every.tolist()
        if more + spare_bytes <= free and shared + more + spare_bytes <= total:
            return ""
        return (
            f"the ranks of a node cannot share {more / 1e6:,.0f} MB ({(shared + more) / 1e6:,.0f} MB with what they "
            f"share already): {SHARED} has {free / 1e6:,.0f} MB free of {total / 1e6:,.0f}; {REMEDY}"
        )

    def _is_first(self) -> bool:
        """Whether this is the first of the group's ranks on its node."""
        return self._me == self._ranks[0]

    def _window(self, num_bytes: int) -> Window:
        group, windows = self._group, self.windows
        name = windows.name(f"{group.context} on {group.nodes[group.rank]}")
        window = Window(self._neighbours, self._ranks, name, num_bytes)
        windows.add(window)
        self._guard.frees[name] = window.free
        group.memory_ends.append(lambda: self._end(window))
        return window

    def _end(self, window: Window) -> None:
        """Free a window, unless some rank still has arrays in it: then it exists until the job ends."""
        if window in self._common:
            self._common.remove(window)
        if not window.in_use():
            self.windows.remove(window)
            self._guard.frees.pop(window.name)()

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """An array that all ranks of the node can access; if there is no room for all of theirs, private memory."""
        num_bytes = phantom(shape, dtype).nbytes
        if lack := self._lack(num_bytes, _SPARE_BYTES):
            if self._is_first():
                words = f"{lack}. Each rank gets private memory instead, and collectives are slower"
                warnings.warn(words, RuntimeWarning, stacklevel=3)
            return np.empty(shape, dtype)
        part = self._window(num_bytes).parts[self._me]
        return np.ndarray(shape, dtype, buffer=part if num_bytes else None)

    def device_window(self, comm: Communicator, num_bytes: int) -> DeviceWindow:
        """A new window of device memory. All ranks of the group must call it, and be on one node."""
        window = DeviceWindow(comm, self.windows.name(f"{self._group.context} on the device"), num_bytes)
        self.windows.add(window)
        self._guard.frees[window.name] = window.free
        self._group.ends.append(lambda: self._end_device(window))
        return window

    def _end_device(self, window: DeviceWindow) -> None:
        self.windows.remove(window)
        self._guard.frees.pop(window.name)()
        self._group.mpi.Barrier()  # no rank frees its part before all others have closed it

    def device_peers(self, comm: Communicator, num_bytes: int) -> DevicePeers:
        """The device peers of the group, with a window of num_bytes. All ranks must call it."""
        peers = DevicePeers(comm, self.device_window(comm, num_bytes))
        self._group.ends.append(peers.end)
        return peers

    def device_empty(self, comm: Communicator, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """An array on the device that all ranks of the node can access."""
        window = self.device_window(comm, phantom(shape, dtype).nbytes)
        return window.parts[self._me].view(dtype).reshape(shape)

    def shared(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """One array of zeros for all ranks of the node."""
        num_bytes = phantom(shape, dtype).nbytes
        window = self.window(num_bytes if self._is_first() else 0)
        x = np.ndarray(shape, dtype, buffer=window.parts[self._ranks[0]] if num_bytes else None)
        if self._is_first():
            x[...] = np.zeros((), dtype)
        self._common.append(window)
        self.meet()
        return x

    def meet(self) -> None:
        """Return when all ranks of the node have come and can read what the others wrote."""
        self.fence()
        self._neighbours.Barrier()
        self.fence()

    def fence(self) -> None:
        """A memory barrier for this process's accesses to shared arrays."""
        for window in self._common:
            window.sync()
