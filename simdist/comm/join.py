"""Join: makes a process one of the ranks of its job."""

import faulthandler
import os
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from simdist import environment
from simdist.cluster import Tuned, preset
from simdist.comm.bindings import MPI
from simdist.comm.guard import Guard
from simdist.comm.leftovers import drop, files_of_start
from simdist.comm.mpi import MpiCommunicator
from simdist.comm.mpi_group import MpiGroup
from simdist.comm.mpi_memory import Windows
from simdist.comm.nodes import common_zero, node_indices, open_board, pretended
from simdist.comm.placement import Placement
from simdist.errors import DataError, WorldUnavailable
from simdist.trace import Recorder

__all__ = ["choose_netmod", "join"]

_NETMOD = ("MPICH_CH4_NETMOD", "MPIR_CVAR_CH4_NETMOD", "MPIR_PARAM_CH4_NETMOD")  # all names of one setting


def join(guard: Guard) -> MpiCommunicator:
    """The communicator of all ranks of this process's job.

    Every rank must call it, once.

    Raises:
        WorldUnavailable: the launcher and the library belong to different MPIs.
    """
    watchdog = guard.watchdog
    if not MPI.Is_initialized():
        choose_netmod(os.environ, MPI.Get_library_version())
        with _deadline(watchdog.start_timeout_s):
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
    guard.abort, guard.finalize = MPI.COMM_WORLD.Abort, _finalize
    world = MPI.COMM_WORLD.Dup()
    if world.Get_size() != watchdog.size:
        library = MPI.Get_library_version().split("\n")[0].rstrip("\0 ")
        raise WorldUnavailable(
            f"the launcher says that there are {watchdog.size} ranks, the MPI library ({library}) sees "
            f"{world.Get_size()}: start the job with the mpirun of that library"
        )
    neighbours = world.Split_type(MPI.COMM_TYPE_SHARED)
    drop(files_of_start())
    nodes = node_indices(world, neighbours)
    open_board(watchdog, neighbours)
    zero_s = common_zero(world, neighbours, nodes)
    farewell = world.Dup()
    placement = Placement(pretended(nodes))
    cluster = preset("this-machine").with_(tuned=_tuned(world), devices_per_node=placement.most)
    guard.meet = lambda: _meeting(farewell, guard)
    if watchdog.board is not None:
        watchdog.board.beat(watchdog.lines[0].words(None))
    recorder = Recorder(watchdog.rank)
    group = MpiGroup(world, "world", range(world.Get_size()), placement)
    return MpiCommunicator(group, guard, watchdog.lines[0], recorder, zero_s, Windows(), cluster)


def choose_netmod(variables: MutableMapping[str, str], library: str) -> None:
    """Have the ranks of an MPICH on several nodes reach each other by OFI instead of UCX, unless the user has chosen.

    Over UCX a receive from ANY source never ends if the message comes from another node (in the wheels 4.3.2 to 5.0.2);
    over TCP both are about as fast. On one node neither is used, and OFI would require a network.

    Args:
        variables: of this process's environment.
        library: MPI's description of itself; a wheel's has the line `MPICH Device: ch4:ucx ofi`.
    """
    _, ranks, ranks_here = environment.place(variables) or (0, 1, 1)
    device = next((line for line in library.splitlines() if line.startswith("MPICH Device:")), "")
    if ranks_here < ranks and "ucx" in device and "ofi" in device and not any(name in variables for name in _NETMOD):
        variables["MPICH_CH4_NETMOD"] = "ofi"


def _tuned(world: Any) -> Tuned | None:
    """The results of `simdist bench --tune`, read by rank 0, so that all ranks use the same."""
    text = b""
    if world.Get_rank() == 0:
        try:
            found = Tuned.load(Tuned.path())
            text = b"" if found is None else found.as_text().encode()
        except DataError as error:
            os.write(2, f"simdist: {error}; until then `auto` goes by the model\n".encode(errors="backslashreplace"))
    length = np.array([len(text)])
    world.Bcast(length)
    if not length[0]:
        return None
    letters = np.frombuffer(text, np.uint8).copy() if text else np.empty(length[0], np.uint8)
    world.Bcast(letters)
    return Tuned.of_text(letters.tobytes().decode())


def _meeting(farewell: Any, guard: Guard) -> Callable[[], bool]:
    """Start to wait for the ends of all ranks, or of the living ones; returns a test of whether they have come."""
    if not guard.watchdog.survives:
        ended: Callable[[], bool] = farewell.Ibarrier().Test
        return ended

    def survivors_ended() -> bool:
        # Blocks until all living ranks have come, and then no rank depends on another that already ends. A barrier
        # would not do: the last rank to complete it could see others leave, and take them for dead.
        if farewell.Shrink().Get_size() < farewell.Get_size():
            guard.finalize = None  # with a dead rank, about one in five never returns from Open MPI 5.0's MPI_Finalize
        return True

    return survivors_ended


def _finalize() -> None:
    if not MPI.Is_finalized():  # by the program
        MPI.Finalize()


@contextmanager
def _deadline(timeout_s: float) -> Iterator[None]:
    """Print the stack of this process and end it, unless the block ends in time.

    MPI's start holds the GIL, so that the watchdog cannot run.
    """
    stderr = os.dup(2)  # not sys.stderr, which may be replaced
    if timeout_s < float("inf"):
        faulthandler.dump_traceback_later(timeout_s, exit=True, file=stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        os.close(stderr)
