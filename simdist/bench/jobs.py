"""Jobs: run a program on a number of ranks, inside an mpirun job or outside."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.collectives import all_gather
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.launch import in_job, run, world
from simdist.launch.room import check_room

__all__ = ["check_ranks", "given_ranks", "per_rank"]


def given_ranks(where: str) -> list[int]:
    """The number of ranks of the current mpirun job, if it does the work; empty if jobs are started as needed."""
    return [world().size] if where == "mpi" and in_job() else []


def check_ranks(ranks: int, where: str) -> None:
    """Check that this many ranks are possible.

    Raises:
        ArgumentError: the current job has fewer ranks, or this machine has no room for them.
    """
    if where == "virtual" or not in_job():
        check_room(ranks, where)
    elif ranks > world().size:
        raise ArgumentError(f"{ranks} ranks in a job of {world().size}: start it with more ranks, or without mpirun")


def per_rank(
    program: Callable[..., Array], ranks: int, args: tuple[Any, ...], where: str, **options: Any
) -> Array | None:
    """The results of program(comm, *args), an array of the same shape on all ranks: shape (ranks, …).

    Starts a new job. Inside an mpirun job that job does the work, on its first `ranks` ranks; then only rank 0 gets
    the result, and the others None.

    Args:
        where: "mpi" or "virtual".
        options: of `sd.run`.

    Raises:
        ArgumentError: the current job has fewer ranks.
    """
    if where == "virtual" or not in_job():
        return np.stack(run(program, ranks, world=where, args=args, **options).results)
    check_ranks(ranks, where)
    job = world()
    group = job.split(0 if job.rank < ranks else None, job.rank)
    if group is None:
        return None
    found = _together(program, group, args, options.get("check", True))
    group.free()  # MPI has room for some 2000
    return found if job.rank == 0 else None


def _together(program: Callable[..., Array], group: Communicator, args: tuple[Any, ...], check: bool) -> Array:
    group.check = check
    mine = np.ascontiguousarray(program(group, *args))
    group.check = True
    return all_gather(mine, group).reshape(group.size, *mine.shape)
