"""Ends: which of some processes have ended, in the order in which they did."""

import os
import select
import time

from simdist.comm.board import alive

__all__ = ["Ends", "closed_first"]

_HIGH = 900  # more files than a rank has open, and fewer than it may have


class Ends:
    """Processes, none of them a child of this one, whose ends are waited for.

    On Linux the kernel tells of an end at once, and of several in their order, which matters: where one rank
    dies, its launcher kills the others a few milliseconds later. Elsewhere each process is looked at in turn.

    A process that dies closes its files first. So a pipe that it alone can write to tells of its end before
    anything else does, mpirun included.
    """

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}  # by slot
        self._slots: dict[int, int] = {}  # by descriptor, of a process or a pipe
        self._epoll = select.epoll() if hasattr(select, "epoll") and hasattr(os, "pidfd_open") else None

    def __contains__(self, slot: int) -> bool:
        return slot in self._pids

    def __len__(self) -> int:
        return len(self._pids)

    def add(self, slot: int, pid: int) -> bool:
        """Wait for this process too, and call it `slot`; false where it has ended already."""
        self._pids[slot] = pid
        if self._epoll is not None:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                return False
            except OSError:  # no descriptors left, say: then it is looked at
                return alive(pid)
            self._slots[fd] = slot
            self._epoll.register(fd, select.EPOLLIN)
        return True

    def add_pipe(self, slot: int, fd: int) -> None:
        """Wait also for this pipe, of which this is the reading end, to lose the process that writes to it."""
        self._slots[fd] = slot
        if self._epoll is not None:
            self._epoll.register(fd, select.EPOLLHUP)

    def wait(self, timeout_s: float) -> list[int]:
        """The slots of those that have ended since the last time, as soon as there is one or the time is over."""
        if self._epoll is None:
            time.sleep(timeout_s)
            return [slot for slot, pid in self._pids.items() if not alive(pid)]
        ended = [(fd, self._slots.pop(fd)) for fd, _ in self._epoll.poll(timeout_s)]
        for fd, _ in ended:
            self._epoll.unregister(fd)
            os.close(fd)
        return list(dict.fromkeys(slot for _, slot in ended))

    def close(self) -> None:
        """Wait no more."""
        if self._epoll is not None:
            self._epoll.close()
        for fd in self._slots:
            os.close(fd)
        self._slots.clear()


def closed_first(fd: int) -> int:
    """This descriptor under the number that a process which is killed closes before its others.

    Linux closes the highest first (from 4.3 on). Where the others are closed before the pipe that tells of an end,
    mpirun may see the end from them, kill another rank, and that one's pipe be the first to close.
    """
    import fcntl  # which Windows has not

    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # beyond the limit of this process
        return fd
    os.close(fd)
    return moved
