"""Jobs: run a program on a number of ranks, inside an mpirun job or outside."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.bench.trial import Trial
from simdist.collectives import all_gather, cost
from simdist.errors import ArgumentError
from simdist.launch import in_job, run, world
from simdist.launch.room import check_room

__all__ = ["check_ranks", "foretell", "given_ranks", "per_rank"]

_MANY = 100  # ranks: fewer are soon done
_LONG = 10_000_000  # messages: half a minute or more
_MESSAGE_S = 5e-6


def foretell(trials: Sequence[Trial], ranks: int) -> None:
    """Say on standard error if trials on virtual ranks will take long, before they begin."""
    if ranks < _MANY:
        return
    others = np.random.default_rng(0).integers(1, ranks, 16).tolist()  # stand for all but rank 0, which may be a root
    longest = {(trial.operation, trial.algorithm): trial for trial in sorted(trials, key=lambda trial: trial.length)}
    messages = 0.0
    for (operation, algorithm), times in Counter((trial.operation, trial.algorithm) for trial in trials).items():
        trial = longest[operation, algorithm]  # for all: nearly as many messages, and some costs take a while to count
        num_bytes = trial.length * np.dtype(trial.dtype).itemsize * (ranks if operation == "all_to_all" else 1)
        of = [cost(operation, algorithm, ranks=ranks, num_bytes=num_bytes, rank=r).messages for r in (0, *others)]
        messages += times * (of[0] + (ranks - 1) * float(np.mean(of[1:])))
    if messages > _LONG:
        sys.stderr.write(
            f"{ranks:,} virtual ranks have about {messages:.1e} messages to send, which takes some "
            f"{max(1, messages * _MESSAGE_S / 60):,.0f} min; fewer ranks, algorithms or sizes take less\n"
        )


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
    group.check = options.get("check", True)
    mine = np.ascontiguousarray(program(group, *args))
    group.check = True
    found = all_gather(mine, group).reshape(ranks, *mine.shape)
    group.free()  # MPI has room for some 2000
    return found if job.rank == 0 else None
