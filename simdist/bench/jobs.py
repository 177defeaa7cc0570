"""Jobs: the same program on so many ranks, wherever this process is."""

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
    """How many ranks the job at hand has, if it is to do the work; nothing where jobs are started as needed."""
    return [world().size] if where == "mpi" and in_job() else []


def check_ranks(ranks: int, where: str) -> None:
    """See that there can be so many ranks.

    Raises:
        ArgumentError: the job at hand, or this machine, has fewer.
    """
    if where == "virtual" or not in_job():
        check_room(ranks, where)
    elif ranks > world().size:
        raise ArgumentError(
            f"asked for {ranks} ranks in a job of {world().size}: start one with more, or this without mpirun"
        )


def per_rank(
    program: Callable[..., Array], ranks: int, args: tuple[Any, ...], where: str, **options: Any
) -> Array | None:
    """What program(comm, *args), an array of the same shape on all ranks, returns on each: shape (ranks, …).

    Starts a job of its own; but in a process that mpirun started, the job at hand does the work, on its first
    `ranks` ranks, and rank 0 alone gets the result; the others None.

    Args:
        where: "mpi" or "virtual".
        options: as of `sd.run`.

    Raises:
        ArgumentError: the job at hand has fewer ranks.
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
