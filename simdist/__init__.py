"""Distributed training, written out by hand: a rank is a function of its communicator.

One program, two worlds:

    import simdist as sd
    from simdist.collectives import all_reduce

    def program(comm):
        x = np.full(8, 10**comm.rank, dtype=np.int64)
        all_reduce(x, comm, algorithm="ring")
        return x

    sd.run(program, ranks=4)                  # virtual ranks, in this process
    sd.run(program, ranks=4, world="mpi")     # four processes under mpirun

What papers say is there as functions: `collectives.formula`, `bench.measure`, `nn.formulas`, the formulas of
`parallel.zero`, `parallel.tensor`, `parallel.sequence`, `parallel.expert`, `parallel.pipeline` and
`parallel.compression`, and those of `planning`, `cluster`, `optim`, `asynchronous` and `training.checkpoint`. The
README.md of this folder lists them.
"""

from simdist import start  # first: it handles Ctrl-C while the other imports run

# isort: split
from simdist import environment
from simdist.comm.world import heed_early_failures
from simdist.errors import (
    ArgumentError,
    ArrayError,
    CheckpointError,
    CheckpointMismatch,
    CollectiveMismatch,
    CorruptCheckpoint,
    DataError,
    DeadlineError,
    DeadlockError,
    MessageMismatch,
    PeerLost,
    RankFailed,
    ReplicaDrift,
    ScheduleError,
    SharedMemoryFull,
    SimdistError,
    UnknownNameError,
    WorldUnavailable,
)
from simdist.launch import Run, run, world

heed_early_failures()
start.over()

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArrayError",
    "CheckpointError",
    "CheckpointMismatch",
    "CollectiveMismatch",
    "CorruptCheckpoint",
    "DataError",
    "DeadlineError",
    "DeadlockError",
    "MessageMismatch",
    "PeerLost",
    "RankFailed",
    "ReplicaDrift",
    "Run",
    "ScheduleError",
    "SharedMemoryFull",
    "SimdistError",
    "UnknownNameError",
    "WorldUnavailable",
    "__version__",
    "environment",
    "run",
    "world",
]
