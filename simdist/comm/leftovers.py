"""Leftovers: files that an MPI makes on a node for a job, and that remain if the job is killed."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["drop", "files_of_start", "shared_files"]

_KINDS = r"mpich_shm_|mpich_shar_tmp|sm_segment\.|vader_segment\.|osc_|Intel_MPI"
_SHARED = re.compile(rf"/dev/shm/(?:{_KINDS})\S*$", re.MULTILINE)
_MPICH_SHARED = "/dev/shm/mpich_shm_"
_MPICH_TOPOLOGY = "/tmp/hydra_hwloc_xmlfile_"  # independent of TMPDIR


def shared_files(pid: int | str = "self") -> list[str]:
    """The shared-memory files that a process has mapped and that its MPI removes only at a regular end."""
    try:
        maps = os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes())
    except OSError:
        return []
    return sorted(set(_SHARED.findall(maps)))


def files_of_start() -> list[str]:
    """The files that are opened by name only while MPI starts: once all of a node's ranks have, they can be unlinked.

    MPICH's shared memory is then freed when the last process that has mapped it ends, in any way. The other file
    describes the node's cores; MPICH's launcher, the parent of this process, keeps it open.
    """
    found = [name for name in shared_files() if name.startswith(_MPICH_SHARED)]
    with suppress(OSError):  # no permission to inspect the parent
        for descriptor in Path(f"/proc/{os.getppid()}/fd").iterdir():
            with suppress(OSError):  # closed in the meantime
                name = str(descriptor.readlink())
                if name.startswith(_MPICH_TOPOLOGY):
                    found.append(name)
    return found


def drop(names: Iterable[str]) -> None:
    """Remove these files, if they still exist."""
    for name in names:
        Path(name).unlink(missing_ok=True)
