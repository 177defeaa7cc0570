"""World: the communicator of all ranks of the job that this process belongs to."""

import os
from functools import cache

from simdist import environment
from simdist.comm.communicator import Communicator
from simdist.comm.guard import guard
from simdist.comm.line import START
from simdist.comm.solo import SoloCommunicator
from simdist.errors import WorldUnavailable

__all__ = ["world"]


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
