"""Leftovers: files that an MPI makes on a node for a job, and that remain if the job is killed."""

import fcntl
import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["drop", "files_of_start", "shared_files", "unused_files"]

_KINDS = r"mpich_shm_|mpich_shar_tmp|sm_segment\.|vader_segment\.|osc_|Intel_MPI"
_SHARED = re.compile(rf"/dev/shm/(?:{_KINDS})\S*$", re.MULTILINE)
_MPICH_SHARED = "/dev/shm/mpich_shm_"
_MPICH_KINDS = "mpich_sh", "ucx_shm_posix_"  # of MPICH itself, and of UCX below it
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


def unused_files(since_s: float) -> list[str]:
    """MPICH's shared-memory files that this user's processes have made since a time and that no process uses any more.

    They are of ranks that were killed as MPI started, before anyone could ask them for `shared_files`. A rank uses such
    a file from the moment it makes it until it ends, so that none of a living job is among them.
    """
    found = []
    for path in (path for kind in _MPICH_KINDS for path in Path("/dev/shm").glob(f"{kind}*")):
        with suppress(OSError):  # removed in the meantime
            status = path.stat()
            if status.st_uid == os.getuid() and status.st_mtime >= since_s and _is_unused(path):
                found.append(str(path))
    return found


def _is_unused(path: Path) -> bool:
    """Whether no process has this file open or mapped: only then Linux grants a lease to write it (man 2 fcntl).

    That counts processes of other containers, too, which /proc does not show.
    """
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # instead of a wait for another process's lease
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # ignored; what tells that another process opens the file
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def drop(names: Iterable[str]) -> None:
    """Remove these files, if they still exist."""
    for name in names:
        Path(name).unlink(missing_ok=True)
