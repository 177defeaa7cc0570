"""World: the communicator of all ranks of the job that this process belongs to."""

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
    """This process's world: all ranks of the job under mpirun, and a world of one without.

    Under mpirun the first call starts MPI and must be made by every rank; from then on an exception, an
    exit or the death of one rank ends the job. Without mpirun MPI is not so much as loaded.

    Raises:
        WorldUnavailable: under mpirun, but without an MPI library that belongs to it.
    """
    here = environment.place()
    if here is None:
        return SoloCommunicator()
    if "OMPI_COMM_WORLD_RANK" in os.environ:  # read when Open MPI starts; what the user has set holds
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # this way to one-sided communication may crash at the end
        if here[2] > environment.num_cores():
            os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    keeper = guard()
    keeper.watchdog.lines[0].waiting = START, None, None, 0
    try:
        from simdist.comm.join import join
    except (ImportError, RuntimeError) as error:
        advice = "install one: pip install 'simdist[mpi]'"
        raise WorldUnavailable(f"there is no MPI library to be found; {advice} ({error})") from error
    return join(keeper)


def heed_early_failures() -> None:
    """See that an exception ends the job before `world` is called, too; outside a job, do nothing.

    Others may wait for this rank inside MPI's start already, and not every mpirun takes note of its end. So it
    prints its traceback, joins them and ends the job. The launcher takes note by itself.
    """
    if environment.place() is None or LAUNCHER in os.environ:
        return
    before = sys.excepthook

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        with suppress(Exception):  # where there is no MPI, nobody waits in it
            guard().quiet = True
            world()
            guard().fail(error)

    sys.excepthook = uncaught
