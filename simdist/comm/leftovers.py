"""Leftovers: files that an MPI makes on a node for a job, and that the job leaves behind where it is ended."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["drop", "files_of_start", "shared_files"]

_SHARED = re.compile(r"/dev/shm/(?:mpich_shm_|sm_segment\.|vader_segment\.|osc_|Intel_MPI)\S*$", re.MULTILINE)
_MPICH_SHARED = "/dev/shm/mpich_shm_"
_MPICH_TOPOLOGY = "/tmp/hydra_hwloc_xmlfile_"  # whatever TMPDIR says


def shared_files(pid: int | str = "self") -> list[str]:
    """The files in shared memory that a process has mapped, of those that MPIs remove at their own ends only."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return []
    return sorted(set(_SHARED.findall(maps)))


def files_of_start() -> list[str]:
    """The files that are read by name only while MPI starts: once all of a node's ranks have, the names can go.

    MPICH's shared memory goes then with the last process that has mapped it, however that ends. Its launcher, the
    parent of this process, has described the node's cores in a file that it keeps open.
    """
    found = [name for name in shared_files() if name.startswith(_MPICH_SHARED)]
    with suppress(OSError):  # a parent that is not ours to look into
        for descriptor in Path(f"/proc/{os.getppid()}/fd").iterdir():
            with suppress(OSError):  # one that is closed by now
                name = str(descriptor.readlink())
                if name.startswith(_MPICH_TOPOLOGY):
                    found.append(name)
    return found


def drop(names: Iterable[str]) -> None:
    """Remove these files, as far as they are still there."""
    for name in names:
        Path(name).unlink(missing_ok=True)
