"""World: the communicator of all ranks of this process's job."""

import os
import sys
from contextlib import suppress
from functools import cache
from types import TracebackType

from simdist import environment
from simdist.comm.communicator import Communicator
from simdist.comm.guard import LAUNCHER, guard
from simdist.comm.line import START
from simdist.comm.solo import SoloCommunicator
from simdist.errors import WorldUnavailable

__all__ = ["heed_early_failures", "world"]


@cache
def world() -> Communicator:
    """This process's world: all ranks of the job under mpirun; without mpirun, a world of one rank.

    Under mpirun the first call starts MPI and must be made by every rank; from then on an exception, a nonzero exit
    or the death of one rank ends the job. Without mpirun MPI is not loaded.

    Raises:
        WorldUnavailable: there is no MPI library, or it does not match the mpirun; or srun has started several
            processes without an MPI.
    """
    here = environment.place()
    if here is None:
        if (tasks := environment.tasks_without_mpi()) > 1:
            raise WorldUnavailable(
                f"srun has started {tasks} processes, but without an MPI, so that each would be a world of its own: "
                "srun --mpi=pmi2 starts ranks of MPICH, srun --mpi=pmix those of Open MPI, and so does mpirun"
            )
        return SoloCommunicator()
    if "OMPI_COMM_WORLD_RANK" in os.environ:  # read when Open MPI starts; the user's settings take precedence
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # its one-sided communication may crash when MPI ends
        if here[2] > environment.num_cores():
            os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    keeper = guard()
    line = keeper.watchdog.lines[0]
    line.waiting = START, None, None, 0
    try:
        try:
            from simdist.comm.join import join
        except (ImportError, RuntimeError) as error:
            advice = "install one: pip install 'simdist[mpi]'"
            raise WorldUnavailable(f"there is no MPI library to be found; {advice} ({error})") from error
        return join(keeper)
    finally:
        line.waiting = None  # also where the program goes on without a world


def heed_early_failures() -> None:
    """Make an exception end the job even before `world` is called; outside a job, do nothing.

    Other ranks may already wait for this one in MPI's start, and not every mpirun reacts to its end. So it prints its
    traceback, joins them and ends the job. Under simdist's own launcher this is not needed.
    """
    if environment.place() is None or LAUNCHER in os.environ:
        return
    before = sys.excepthook

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        with suppress(Exception):  # without an MPI library no rank waits in its start
            guard().quiet = True
            world()
            guard().fail(error)

    sys.excepthook = uncaught
