"""Peers among real ranks: meetings by flags in shared memory; a few hundred nanoseconds if every rank has a core.

A rank's part of the window:

    line 0   | n | said, place | said, place |      n       the number of its last meeting
    line 1   |                                      said    a hash of the call that it says it makes
    ...                                             place   a hash of the place of the array that it shows
    room 0   | posted data                  |
    room 1   | posted data                  |

At meeting n a rank writes `said` and `place` to slot n mod 2, then n. No rank can write to that slot again, at meeting
n + 2, before all ranks have read it and come to meeting n + 1.
"""

import os
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from simdist.arrays import Array, hold, kind_of
from simdist.arrays.kind import address
from simdist.comm.affinity import MOST_CORES, Affinity, affinity, set_mask
from simdist.comm.checks import cut, mismatch
from simdist.comm.device_memory import DevicePeers
from simdist.comm.line import MEETING
from simdist.comm.mpi_errors import check_array
from simdist.comm.mpi_group import digest
from simdist.comm.mpi_memory import MpiMemory
from simdist.comm.peers import HEAD_BYTES, ROOM_BYTES, Peers, Views
from simdist.errors import ArrayError, CollectiveMismatch, PeerLost
from simdist.words import listed

if TYPE_CHECKING:
    from simdist.comm.mpi import MpiCommunicator

__all__ = ["MpiPeers"]

_POLLS = 64  # of a flag before it counts as a wait: some microseconds
_YIELDS = 8  # the same, if ranks share cores and yield between two polls
_PATIENCE_S = 1e-2  # of waiting without sleep, if every rank has a core; a tenth of it if some share one
_LONGEST_PAUSE_S = 1e-3
_SELFISH_S = 1e-4  # for which the GIL is held: releasing it takes nearly as long
_MAIN_AND_WATCHDOG = 2
_MOST_VIEWS = 4096
_NOWHERE = Views([])


class MpiPeers(Peers):
    """The ranks of a group on one node.

    Args:
        comm: the communicator that collectives use, and that messages about waits name.
        memory: of the group.
        context: the name of the communicator that the program uses.

    Attributes:
        yields: whether a waiting rank lets others run at once, because some share a core.

    All ranks of the group must call this.
    """

    comm: "MpiCommunicator"

    def __init__(self, comm: "MpiCommunicator", memory: MpiMemory, context: str) -> None:
        super().__init__(comm)
        self._rank = comm.rank
        self._context = context
        self._windows = memory.windows
        self._memory = memory
        self._device: DevicePeers | None = None
        window = memory.window(HEAD_BYTES + 2 * ROOM_BYTES)
        self._sync = window.sync
        self._parts = [window.parts[rank] for rank in comm.ranks]
        hold("communication", self._parts[self._rank], "a collective")
        flags = [memoryview(part[:HEAD_BYTES]).cast("q") for part in self._parts]
        self._mine = flags[self._rank]
        self._mine[0] = 0
        self._meetings = self._room = self._said = self._num_removed = 0
        self._what = ""
        self._rooms: dict[tuple[Any, bool], tuple[list[Array], list[Array]]] = {}
        self._views: dict[tuple[int, int, Any], tuple[int, Views]] = {}
        self.yields, self._near = self._affinity(memory)
        others = [rank for rank in range(comm.size) if rank != self._rank]
        self._others = [(rank, flags[rank]) for rank in sorted(others, key=lambda rank: rank not in self._near)]
        self._between_polls = _give_way if self.yields else None
        self._polls, self._patience_s = (_YIELDS, _PATIENCE_S / 10) if self.yields else (_POLLS, _PATIENCE_S)

    def _affinity(self, memory: MpiMemory) -> Affinity:
        """How the ranks share cores, from masks that they exchange. Returns when all have come."""
        masks = [part[HEAD_BYTES:][:MOST_CORES] for part in self._parts]
        set_mask(masks[self._rank])
        memory.meet()
        found = affinity(np.array(masks), self._rank)
        memory.meet()
        return found

    def end(self) -> None:
        """Drop all references to the window."""
        self._parts, self._others, self._mine = [], [], memoryview(b"")
        self._rooms.clear()
        self._views.clear()
        self._device = None

    # -- meeting ---------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        """Set what this rank says at the next meeting, which compares it with what the others say."""
        self._what, self._said = what, _digest(what)

    def meet(self) -> None:
        """See Peers."""
        self._come(0)

    def _come(self, place: int) -> bool:
        """Meet, and show a place; returns whether all ranks show the same one."""
        device = self._device
        if device is not None:
            device.arrive()
        n = self._meetings = self._meetings + 1
        mine, said, slot = self._mine, self._said, 1 if n & 1 else 3
        mine[slot], mine[slot + 1] = said, place
        self._sync()
        mine[0] = n
        for rank, flags in self._others:
            if flags[0] < n:
                self._await(rank, flags, n)
        self._sync()
        same = True
        for _, flags in self._others:
            if flags[slot] != said:
                raise self._contradicted()
            same &= flags[slot + 1] == place
        if device is not None:
            device.depart()
        if said:
            self._what, self._said = "", 0
        return same

    def _contradicted(self) -> CollectiveMismatch:
        """The error for ranks that say different things."""
        what = self._what or "nothing"
        self._what, self._said = "", 0
        return mismatch(self._context, self.comm.exchange(cut(what)))

    def _await(self, rank: int, flags: memoryview, n: int) -> None:
        """Wait until a rank has come to meeting n: poll, then yield between polls, then sleep between them."""
        between = self._between_polls
        if rank not in self._near:  # it does not wait for this rank's core
            for _ in range(_POLLS):
                if flags[0] >= n:
                    return
        for _ in range(self._polls):
            if between is not None:
                between()
            if flags[0] >= n:
                return
        comm = self.comm
        line, start_s, pause_s, threads = comm.line, perf_counter(), 2e-5, 0
        before, line.waiting = line.waiting, (self._what or "a meeting", comm, rank, MEETING)
        try:
            while flags[0] < n:
                waited_s = perf_counter() - start_s
                if waited_s < self._patience_s:
                    _give_way()
                    if waited_s > _SELFISH_S:
                        threads = threads or threading.active_count()
                        if threads > _MAIN_AND_WATCHDOG:  # another stream of this rank may need the GIL
                            time.sleep(0)
                else:
                    self._look_for_deaths(rank)
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            line.waiting = before

    def _look_for_deaths(self, rank: int) -> None:
        """Raise PeerLost if a rank of the group has died and the job is to survive that."""
        comm = self.comm
        if comm.guard.watchdog.survives and (lost := comm.lost()):
            raise PeerLost(f"a meeting on rank {comm.rank} of {comm.context!r}, with rank {rank}: {listed(lost)} died")

    # -- showing and posting -----------------------------------------------------------------------------

    def show(self, x: Array, ahead: bool = False) -> Views | None:
        """See Peers."""
        if self._ahead is not None and self._ahead[0] == self._meetings:
            (_, views), self._ahead = self._ahead, None
            return views
        place, views, far = 0, _NOWHERE, False
        if type(x) is not np.ndarray:
            check_array("show", x, self._rank)
            far = self._on_device(x)  # the first call is collective: all ranks make it, wherever their arrays are
        if x.base is not None:  # otherwise the array owns its memory, and is in no window
            where = address(x) if far else self._windows.address(x)
            key = where, x.size, x.dtype
            place, views = self._views.get(key) or self._find(x, key)
        found = views if self._come(place) and place else None
        self._ahead = (self._meetings, found) if ahead and found is not None else None
        return found

    def _find(self, x: Array, key: tuple[int, int, Any]) -> tuple[int, Views]:
        """The hash of x's place and every rank's array there; 0 and none if x is in no window."""
        place = self._windows.place(key[0], x.nbytes)
        if place is None:
            return 0, _NOWHERE
        window, offset = place
        parts = [window.parts.get(rank) for rank in self.comm.ranks]
        if any(part is None or len(part) < offset + x.nbytes for part in parts):
            return 0, _NOWHERE
        if len(self._views) == _MOST_VIEWS:
            self._views.clear()
        views = Views(_view(part, offset, x.size, x.dtype) for part in parts)
        found = self._views[key] = _digest(f"{window.name} {offset} {x.nbytes}"), views
        return found

    def post(self, *parts: Array) -> Sequence[Array]:
        """See Peers."""
        room = 1 - self._room
        key = parts[0].dtype, self._on_device(parts[0])
        rooms = self._rooms.get(key) or self._furnish(*key)
        copies = rooms[room]
        mine, at = copies[self._rank], 0
        for part in parts:
            if type(part) is not np.ndarray:
                check_array("post", part, self._rank)
            end = at + len(part)
            mine[at:end] = part
            at = end
        self._come(0)
        self._room = room  # only now: where the ranks say different things, not all of them may have posted
        return copies

    def _furnish(self, dtype: Any, on_device: bool) -> tuple[list[Array], list[Array]]:
        """Both rooms of every rank as arrays of this dtype."""
        self.comm.check_shared("post", dtype)
        parts, begin = self._parts, HEAD_BYTES
        if self._device is not None and on_device:
            parts, begin = [self._device.window.parts[rank] for rank in self.comm.ranks], 0
        items = ROOM_BYTES // dtype.itemsize
        first, second = ([_view(part, begin + room * ROOM_BYTES, items, dtype) for part in parts] for room in (0, 1))
        rooms = self._rooms[dtype, on_device] = first, second
        return rooms

    # -- on devices --------------------------------------------------------------------------------------

    def memory_of(self, x: Array) -> str:
        """See Peers."""
        on_device = type(x) is not np.ndarray and self._on_device(x)
        return self._device.memory if on_device and self._device is not None else "host"

    def led(self, x: Array) -> Sequence[int]:
        """See Peers. One of the ranks that share a GPU reduces for all of them."""
        return self._device.led if self._device is not None and kind_of(x) == "cupy" else [self._rank]

    def _on_device(self, x: Array) -> bool:
        """Whether x is on a device. In the first call with such an array, all ranks open each other's device memory."""
        if type(x) is np.ndarray or kind_of(x) != "cupy":
            return False
        if self._device is None:
            if self.comm.device.path != "ipc":
                path = self.comm.device.path or "none"
                raise ArrayError(
                    f"rank {self._rank} shows or posts an array on a device, where device path is {path}: needs ipc, "
                    "or an algorithm by messages"
                )
            self._device = self._memory.device_peers(self.comm, 2 * ROOM_BYTES)
        if self._num_removed != (num_removed := self._windows.num_removed):
            self._num_removed = num_removed
            self._views.clear()  # some may be of memory that is closed
        return True


def _view(part: Array, offset: int, items: int, dtype: Any) -> Array:
    """Items of a part of a window, in host or device memory."""
    if type(part) is np.ndarray:
        return np.ndarray(items, dtype, part, offset)
    return part[offset : offset + items * dtype.itemsize].view(dtype)


_give_way = getattr(os, "sched_yield", lambda: None)


@lru_cache(maxsize=4096)
def _digest(what: str) -> int:
    """A 63-bit hash of the text, never 0."""
    return digest(what) >> 1 | 1
