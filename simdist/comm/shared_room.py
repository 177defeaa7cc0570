"""Room: how much memory the processes of a node can have in common."""

import os
from math import inf
from pathlib import Path
from typing import NamedTuple

__all__ = ["REMEDY", "SHARED", "Room", "room"]

SHARED = Path("/dev/shm")
"""Where an MPI keeps its windows, on Linux."""
REMEDY = f"give {SHARED} more, in a container by --shm-size=2g"


class Room(NamedTuple):
    """Bytes of a node's shared memory; without an end where nothing limits them.

    Attributes:
        free: that nobody has written to yet.
        total: of all of it.
    """

    free: float
    total: float


def room() -> Room:
    """What this node has.

    A window takes of it what is written to, and not before that; who writes to more than there is is killed.
    """
    try:
        found = os.statvfs(SHARED)
    except OSError:
        return Room(inf, inf)  # MPI takes its own way
    if not found.f_blocks:  # a file system without a limit
        return Room(inf, inf)
    return Room(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
