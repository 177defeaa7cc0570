"""Environment: this process's place in a job, as its environment variables describe it.

This module imports neither NumPy nor MPI: it divides the cores among the node's ranks before either is loaded.
"""

import math
import os
import re
from collections.abc import Mapping, MutableMapping

from simdist.errors import ArgumentError
from simdist.words import counted

__all__ = [
    "JOB_VARIABLES",
    "LONGEST_S",
    "THREAD_VARIABLES",
    "cores",
    "crowding",
    "memory_bytes",
    "num_cores",
    "place",
    "pretended_ranks_per_node",
    "share_cores",
    "survives_deaths",
    "tasks_without_mpi",
    "tf32",
    "timeout_s",
]

# The variables that each launcher sets: (rank, ranks in the job, ranks on this node, which srun says in another way).
_PLACES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),  # Open MPI's mpirun
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),  # MPICH's and Intel's mpirun, srun --mpi=pmi2
    ("PMIX_RANK", "SLURM_NTASKS", ""),  # srun --mpi=pmix
)

JOB_VARIABLES = (
    *("PMI_", "PMIX_", "HYDI_", "HYDRA_", "MPI_LOCAL", "PRTE_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE"),
    *("OMPI_WORLD_", "OMPI_NUM_APP_CTX", "OMPI_FILE_LOCATION", "OMPI_COMMAND", "OMPI_ARGV", "OMPI_MCA_num_procs"),
    *("OMPI_MCA_initial_wdir", "OMPI_MCA_PREFIXES", "OMPI_TOOL_NAME", "SLURM_", "PBS_", "LSB_", "PE_HOSTFILE"),
)
"""Prefixes of the variables that tie a process to a job or an allocation; a new job starts without them."""

LONGEST_S = 1e9
"""30 years: longer waits have no limit, since the system's timers take no more than twice that."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""The variables from which the libraries under NumPy read their number of threads."""


def place(variables: Mapping[str, str] = os.environ) -> tuple[int, int, int] | None:
    """(rank, ranks in the job, ranks on this node), as set by the launcher; None outside a job.

    A count that the launcher does not set is taken as 1.
    """
    for rank, size, local_size in _PLACES:
        if rank in variables:
            here = variables.get(local_size) or _slurm_tasks_here(variables)
            return int(variables[rank]), int(variables.get(size, 1)), int(here)
    return None


def _slurm_tasks_here(variables: Mapping[str, str]) -> int:
    """The tasks on this node of a step that srun started: "2(x3),1" is one of two on each of three nodes, one on the
    fourth. 1 where srun did not say.
    """
    counts: list[int] = []
    for part in re.findall(r"(\d+)(?:\(x(\d+)\))?", variables.get("SLURM_STEP_TASKS_PER_NODE", "")):
        counts += [int(part[0])] * int(part[1] or 1)
    node = int(variables.get("SLURM_NODEID", 0))
    return counts[node] if node < len(counts) else 1


def tasks_without_mpi(variables: Mapping[str, str] = os.environ) -> int:
    """How many processes srun has started beside this one, itself included, without making them a job of an MPI; 0 if
    it has not. Each would be a world of one rank.
    """
    return 0 if place(variables) else int(variables.get("SLURM_STEP_NUM_TASKS", 0))


def survives_deaths(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether MPI lets this job continue when a rank dies: it was started by `mpirun --with-ft ulfm`."""
    return variables.get("OMPI_MCA_mpi_ft_enable", "0").lower() not in ("0", "false", "no")


def cores() -> list[int]:
    """The cores that this process may use; all cores where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def num_cores() -> int:
    """How many cores this process may use."""
    return len(cores())


def crowding(ranks: int, streams: int = 1) -> str:
    """What to say of times that so many ranks of a node measured, if they had no core each; else nothing.

    Args:
        streams: of a rank, each of which runs in a thread.
    """
    of_each = f" of {streams} streams each" if streams > 1 else ""
    told = f"{ranks} ranks{of_each} share {counted(num_cores(), 'core')}, so measured times include waiting for a core"
    return told if ranks * streams > num_cores() else ""


def memory_bytes() -> float:
    """The memory of this machine; inf where the system does not report it."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def share_cores(variables: MutableMapping[str, str], ranks: int, cores: int) -> None:
    """Set the number of threads of each rank to its share of the node's cores, at least 1, unless already set.

    Libraries read these variables once, when they are loaded: call this before the first import of NumPy.
    """
    for name in THREAD_VARIABLES:
        variables.setdefault(name, str(max(1, cores // max(1, ranks))))


def timeout_s(variables: Mapping[str, str] = os.environ) -> float:
    """How long a rank may wait before the job ends: SIMDIST_TIMEOUT_S, or 30 s; `inf`, or above 1e9, means no limit.

    Raises:
        ArgumentError: it is not a number above 0.
    """
    text = variables.get("SIMDIST_TIMEOUT_S", "30")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ArgumentError(f"SIMDIST_TIMEOUT_S is {text!r}; needs a number of seconds above 0")
    return seconds if seconds <= LONGEST_S else math.inf


def pretended_ranks_per_node(variables: Mapping[str, str] = os.environ) -> int | None:
    """SIMDIST_RANKS_PER_NODE, the size of the simulated nodes in ranks; None if not set.

    Raises:
        ArgumentError: it is not a whole number above 0.
    """
    text = variables.get("SIMDIST_RANKS_PER_NODE")
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise ArgumentError(f"SIMDIST_RANKS_PER_NODE is {text!r}; needs a whole number of at least 1")
    return int(text)


def tf32() -> bool:
    """Whether a GPU may round float32 to a 10-bit mantissa (TF32) in matrix products: SIMDIST_TF32 is 1."""
    return os.environ.get("SIMDIST_TF32") == "1"


if (_here := place()) is not None:  # on import, which happens before any import of NumPy
    share_cores(os.environ, _here[2], num_cores())
