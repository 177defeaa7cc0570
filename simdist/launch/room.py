"""Room: how many ranks this machine can hold."""

import os
import resource
from numbers import Integral
from pathlib import Path

from simdist.errors import ArgumentError

__all__ = ["BYTES_PER_RANK", "available_bytes", "check_room"]

BYTES_PER_RANK = {"virtual": 30 << 10, "mpi": 60 << 20}
"""The measured memory of a rank before its program makes an array: a greenlet's stack and its channels; a process with
NumPy and MPI."""


def check_room(ranks: int, world: str) -> None:
    """Check that this many ranks fit this machine's memory and, if they are processes, its process limit.

    Raises:
        ArgumentError: they do not fit (with the estimate and the limit), or it is not a whole number of at least 1.
    """
    if not isinstance(ranks, Integral) or isinstance(ranks, bool) or ranks < 1:
        raise ArgumentError(f"ranks is {ranks!r}; needs a whole number of at least 1")
    ranks = int(ranks)  # NumPy's may be of 8 bits
    need, have = ranks * BYTES_PER_RANK[world], available_bytes()
    if have is not None and need > have:
        raise ArgumentError(
            f"{ranks} ranks of world {world!r} need about {need / 1e9:.1f} GB, {BYTES_PER_RANK[world] >> 10} KiB each; "
            f"this machine has {have / 1e9:.1f} GB free, enough for {have // BYTES_PER_RANK[world]}"
        )
    most = _most_processes()
    if world == "mpi" and most is not None and ranks > most:
        raise ArgumentError(f"{ranks} ranks of world 'mpi' are as many processes; this machine allows {most}")


def available_bytes() -> int | None:
    """The free memory, by the kernel and by the container's limit; None if unknown."""
    found = [int(line.split()[1]) << 10 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable:")]
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        found.append(max(0, limit - used))
    return min(found, default=None)


def _most_processes() -> int | None:
    """How many processes there may be; None if unknown."""
    found = [_number("/proc/sys/kernel/pid_max"), _number("/sys/fs/cgroup/pids.max")]
    if os.getuid() != 0:  # this limit does not apply to root
        soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        found.append(None if soft == resource.RLIM_INFINITY else soft)
    return min((n for n in found if n is not None), default=None)


def _number(path: str) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
