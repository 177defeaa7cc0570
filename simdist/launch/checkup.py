"""Checkup: tests what works on this machine, and says how to fix what does not."""

import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from time import perf_counter
from typing import NamedTuple

import numpy as np

from simdist.arrays.kind import device_library
from simdist.cluster import Tuned
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.comm.device import use_device
from simdist.comm.shared_room import REMEDY, SHARED, room
from simdist.environment import num_cores, timeout_s
from simdist.errors import SimdistError, WorldUnavailable
from simdist.launch.mpirun import find_mpirun
from simdist.launch.room import available_bytes
from simdist.launch.run import run
from simdist.words import counted

__all__ = ["Finding", "checkup"]

_LEAST_SHARED_BYTES = 1 << 28
_LEAST_DISK_BYTES = 1 << 27
_RING_RANKS = 64


class Finding(NamedTuple):
    """The result of one check: the state of its subject, and how to fix it, "" if all is well."""

    words: str
    remedy: str = ""


def checkup() -> Iterator[tuple[str, Finding]]:
    """Check one subject after the other; a failure is a finding, too."""
    checks: dict[str, Callable[[], Finding]] = {
        "Python": _python,
        "machine": _machine,
        "shared memory": _shared_memory,
        "folders": _folders,
        "virtual ranks": lambda: _tried(_RING_RANKS, "virtual"),
        "real ranks": _real_ranks,
        "GPU": _gpu,
        "algorithms": _algorithms,
    }
    for what, check in checks.items():
        try:
            yield what, check()
        except Exception as error:  # including errors of a broken library
            known = isinstance(error, SimdistError | OSError)
            yield what, Finding("does not work", str(error) if known else f"{type(error).__name__}: {error}")


def _python() -> Finding:
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    libraries = f"NumPy {np.__version__} on {blas.get('name', 'a BLAS')} {blas.get('version', '')}"
    return Finding(f"{platform.python_version()}, {libraries}".rstrip())


def _machine() -> Finding:
    memory, cores = available_bytes(), num_cores()
    free = "" if memory is None else f", {memory / 1e9:.1f} GB of memory free"
    return Finding(f"{counted(cores, 'core')} for this process{free}")


def _count(comm: Communicator, device: str) -> tuple[list[int], str]:
    """The number of ranks, counted by messages and in shared memory; and the device that they are on."""
    words, counts = use_device(comm, device).words, []
    for algorithm in ("ring", "direct"):
        x = comm.empty(1000, np.int64)
        x[:] = 1
        all_reduce(x, comm, algorithm=algorithm)
        counts.append(int(x.min()))
    return counts, words


def _tried(ranks: int, world: str, device: str = "cpu") -> Finding:
    """A trial run on ranks of a world."""
    start_s = perf_counter()
    counts, words = zip(*run(_count, ranks, world=world, args=(device,), timeout_s=timeout_s()).results, strict=True)
    took_s = perf_counter() - start_s
    if counts != ([ranks, ranks],) * ranks:
        return Finding("count wrong", f"{ranks} ranks, each counted as one, gave {counts}: please report it")
    told = f"{ranks} ranks, counted by messages and in shared memory, in {took_s:.1f} s"
    return Finding(f"{told}; {words[0]}" if words[0] else told)


def _real_ranks() -> Finding:
    mpirun = find_mpirun()
    library = f"{mpirun.kind} {mpirun.version or ''} at {mpirun.path}, mpi4py {version('mpi4py')}"
    try:
        found = _tried(2, "mpi")
    except SimdistError as error:
        return Finding(f"do not work, with {library}", str(error))
    return found._replace(words=f"{found.words}; {library}")


def _shared_memory() -> Finding:
    if not SHARED.is_dir():
        return Finding(f"no {SHARED}: MPI uses its own mechanism")
    with tempfile.TemporaryFile(dir=SHARED):  # it can be written to
        free = room().free
    remedy = f"arrays shared by a node's ranks are allocated there; without it reductions are slower: {REMEDY}"
    return Finding(f"{free / 1e6:,.0f} MB free", "" if free >= _LEAST_SHARED_BYTES else remedy)


def _gpu() -> Finding:
    try:
        count = device_library().num_devices()
    except WorldUnavailable as error:
        return Finding(f"none: {error}")
    return _tried(2, "mpi", "cuda") if count else Finding("none visible to this process")


def _algorithms() -> Finding:
    """How `auto` chooses algorithms."""
    tuned = Tuned.load(Tuned.path())
    by = "the model of this machine; `simdist bench --tune` measures" if tuned is None else f"{Tuned.path()}, measured"
    return Finding(f"auto uses {by}")


def _folders() -> Finding:
    """Whether there is room for the temporary files of jobs."""
    with tempfile.TemporaryDirectory(prefix="simdist-") as folder:
        free = shutil.disk_usage(folder).free
    place = tempfile.gettempdir()
    remedy = f"{place} holds the jobs' temporary files: free some space, or set TMPDIR to another folder"
    return Finding(f"{place} has {free / 1e9:,.1f} GB free", "" if free >= _LEAST_DISK_BYTES else remedy)
