"""Ends: notices the ends of processes, in their order."""

import fcntl
import os
import select
import time

from simdist.comm.board import alive

__all__ = ["Ends", "closed_first"]

_HIGH = 900  # above the descriptors that a rank has open, and below its limit


class Ends:
    """Waits for the ends of processes that are not children of this one.

    On Linux the kernel reports an end at once, and several in their order. The order matters: when one rank dies, its
    launcher kills the others a few milliseconds later. On other systems the processes are polled.

    A dying process closes its files first. So a pipe with this process as its only writer reports the end before
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
        """Watch this process under the name `slot`; False if it has already ended."""
        self._pids[slot] = pid
        if self._epoll is not None:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                return False
            except OSError:  # for example, no descriptors left: it is checked once, and not watched
                return alive(pid)
            self._slots[fd] = slot
            self._epoll.register(fd, select.EPOLLIN)
        return True

    def add_pipe(self, slot: int, fd: int) -> None:
        """Watch the reading end of a pipe, which is closed by the end of the process that holds the writing end."""
        self._slots[fd] = slot
        if self._epoll is not None:
            self._epoll.register(fd, select.EPOLLHUP)

    def wait(self, timeout_s: float) -> list[int]:
        """The slots of the processes that have ended since the last call; returns at the first, or after timeout_s."""
        if self._epoll is None:
            time.sleep(timeout_s)
            return [slot for slot, pid in self._pids.items() if not alive(pid)]
        ended = [(fd, self._slots.pop(fd)) for fd, _ in self._epoll.poll(timeout_s)]
        for fd, _ in ended:
            self._epoll.unregister(fd)
            os.close(fd)
        return list(dict.fromkeys(slot for _, slot in ended))

    def close(self) -> None:
        """Stop watching."""
        if self._epoll is not None:
            self._epoll.close()
        for fd in self._slots:
            os.close(fd)
        self._slots.clear()


def closed_first(fd: int) -> int:
    """Move a descriptor to a number that the kernel closes first when it kills the process.

    Linux closes the highest number first (since 4.3). If mpirun's own pipes were closed before the one that reports the
    end, mpirun could kill another rank, and the pipe of that rank could close first.
    """
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # above this process's limit
        return fd
    os.close(fd)
    return moved
