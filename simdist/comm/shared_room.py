"""Room: how much memory the processes of a node can share."""

import os
from math import inf
from pathlib import Path
from typing import NamedTuple

__all__ = ["REMEDY", "SHARED", "Room", "room"]

SHARED = Path("/dev/shm")
"""Where an MPI keeps its windows, on Linux."""
REMEDY = f"give {SHARED} more, in a container by --shm-size=2g"


class Room(NamedTuple):
    """Bytes of a node's shared memory; inf where there is no limit.

    Attributes:
        free: not written to yet.
        total: free and used.
    """

    free: float
    total: float


def room() -> Room:
    """The shared memory of this node.

    A window takes up space only when it is written to; a process that writes beyond the limit is killed.
    """
    try:
        found = os.statvfs(SHARED)
    except OSError:
        return Room(inf, inf)  # MPI uses its own mechanism
    if not found.f_blocks:  # a file system without a limit
        return Room(inf, inf)
    return Room(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
