"""Against MPI's own collectives, on real ranks."""

from itertools import product

import pytest
from harness import xp as np
from oracle import OPERATIONS, OPS

from simdist.arrays import on_host, partition
from simdist.bench.trial import REDUCING, Trial, contribution, perform
from simdist.collectives import algorithms

pytestmark = [pytest.mark.mpi, pytest.mark.every_case]

DTYPES = ("float32", "float64", "int32", "int64", "bool")  # MPI has no float16
LOGICAL = ("lor", "land")


def by_mpi(trial, comm, x):
    """What MPI itself makes of the same call."""
    from mpi4py import MPI

    mpi, op, root = comm._mpi, getattr(MPI, trial.op.upper()), trial.root
    parts = list(partition(trial.length, comm.size))
    counts, mine = [part.stop - part.start for part in parts], parts[comm.rank]
    y, shard = np.empty_like(x), np.empty_like(x, shape=(counts[comm.rank],))
    match trial.operation:
        case "all_reduce":
            mpi.Allreduce(x, y, op)
        case "reduce":
            mpi.Reduce(x, y, op, root)
        case "reduce_scatter":
            mpi.Reduce_scatter(x, shard, counts, op)
            return shard
        case "all_gather":
            mpi.Allgatherv(x[mine].copy(), [y, counts])
        case "gather":
            mpi.Gatherv(x[mine].copy(), [y, counts], root)
        case "scatter":
            mpi.Scatterv([x, counts], shard, root)
            return shard
        case "broadcast":
            y[...] = x
            mpi.Bcast(y, root)
        case "all_to_all":
            mpi.Alltoall(x, y)
    return None if trial.operation in ("reduce", "gather") and comm.rank != root else y


def compare(comm, trials):
    """The program: both must give the same, but for the rounding of sums and products."""
    for trial in (Trial(*trial) for trial in trials):
        x = contribution(trial, comm.size, comm.rank)
        theirs = by_mpi(trial, comm, on_host(x).copy())
        ours = perform(trial, comm, x)
        where = f"rank {comm.rank}, {trial}"
        assert (ours is None) == (theirs is None), where
        if ours is not None:
            rounds = trial.dtype.startswith("float") and trial.op in ("sum", "prod")
            np.testing.assert_allclose(on_host(ours), theirs, rtol=1e-5 if rounds else 0, err_msg=where)


def kinds(operation, p):
    """Dtypes and ops that MPI knows: its logical operations are not for floats, its arithmetic not for bools. On three
    ranks each with each; an algorithm, which depends on the number of ranks, has each once on others.
    """
    if operation not in REDUCING:
        return [(dtype, "sum") for dtype in DTYPES]
    arithmetic = [op for op in OPS if op not in LOGICAL]
    if p != 3:
        return [*zip(DTYPES, arithmetic, strict=False), *(("bool", op) for op in LOGICAL)]
    return [(dtype, op) for dtype in DTYPES for op in (LOGICAL if dtype == "bool" else arithmetic)] + [
        (dtype, op) for dtype in ("int32", "int64") for op in LOGICAL
    ]


@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_all_algorithms_give_what_mpi_gives(spmd, operation, p):
    pairs = product(algorithms(operation), kinds(operation, p))
    spmd(compare, p, [tuple(Trial(operation, name, 3 * p + 1, *kind, p - 1)) for name, kind in pairs])
