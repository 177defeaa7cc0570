"""Script: any script on real ranks, as `mpirun -n 4 python script.py` would, but guaranteed to end."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from simdist import environment
from simdist.errors import ArgumentError, WorldUnavailable
from simdist.launch.job import Job
from simdist.launch.mpirun import DEAF, in_job
from simdist.launch.room import check_room
from simdist.launch.signals import ENDING, handled

__all__ = ["launch_script"]

_PATIENCE_S = 1.0  # an earlier second signal is the same Ctrl-C, forwarded by another process


class _Stopped(BaseException):
    """A signal asked for the end of the job."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def launch_script(ranks: int, argv: Sequence[str], heed: Sequence[signal.Signals] = (), survive: bool = False) -> int:
    """Run a script on `ranks` processes of this machine under mpirun, until it ends.

    Its output goes where this process's goes; its input is empty. An exception, an exit code or the death of one rank
    ends all; so do Ctrl-C, SIGTERM and SIGHUP, except where they are ignored, as under nohup, and the death of this
    process.

    Args:
        argv: the script and its arguments, or "-m", a module and its arguments.
        heed: signals that the script handles: they are forwarded to its ranks. A second one that asks for an end,
            a second or more after the first, ends the job as it would have done without this.
        survive: the death of a rank ends the job only if the others cannot continue without it.

    Returns:
        the exit code of the job: not 0 where any rank failed.

    Raises:
        WorldUnavailable: no MPI is installed, it does not support survival, or this is already a rank of an MPI job.
        ArgumentError: no such script or module, ranks below 1 or too many for this machine.
    """
    if not argv or (argv[0] != "-m" and not Path(argv[0]).is_file()) or list(argv) == ["-m"]:
        raise ArgumentError(f"no script to run: {' '.join(argv) or 'none given'}")
    if argv[0] == "-m":
        _check_module(argv[1])
    if in_job():
        raise WorldUnavailable("this process is already a rank of an MPI job, and cannot start another")
    check_room(ranks, "mpi")
    try:
        jobs: list[Job] = []
        with _ending_on_signals(jobs, heed), Job(ranks, environment.timeout_s(), survive) as job:
            jobs.append(job)
            print(end="", flush=True)
            deaf = {DEAF: str(int(signal.SIGUSR1))} if signal.SIGUSR1 in heed else {}
            job.start([sys.executable, "-m", "simdist.launch.rank_process", *argv], told=deaf)
            return _wait(job)
    except _Stopped as stopped:
        return 128 + stopped.number


def _check_module(name: str) -> None:
    """Raise ArgumentError unless ranks, which search this folder first, would find this module or its package, and in a
    package that is itself to be run, its `__main__`.
    """
    package, dot, _ = name.partition(".")
    spec = PathFinder.find_spec(package, [""])  # "": this folder
    with suppress(ValueError):  # an empty name
        if spec is None and package != "__main__":  # that one is this process's own program
            spec = find_spec(package)
    if spec is None:
        raise ArgumentError(f"no module to run: {name}")
    folders = spec.submodule_search_locations
    if not dot and folders is not None and PathFinder.find_spec("__main__", folders) is None:
        raise ArgumentError(f"no module to run: {name} is a package without __main__.py")


def _wait(job: Job) -> int:
    """Wait for the job's end, and report what goes wrong; returns its exit code."""
    told = 0
    while (code := job.poll()) is None:
        told = _tell_deaths(job, told)
    _tell_deaths(job, told)
    if job.overdue and code != 128 + signal.SIGPIPE:  # the launcher's, when the reader of its output has gone
        _tell(f"the job was ended: {job.overdue}")
    return code


def _tell_deaths(job: Job, told: int) -> int:
    """Report the deaths that have not been reported; returns how many have been by now."""
    deaths = job.deaths if job.survive else job.deaths[:1]  # the other ranks die of it
    for death in deaths[told:]:
        _tell(f"rank {death.rank} of {job.ranks} (process {death.pid}) {death.how or 'has died'}")
    return len(deaths)


def _tell(text: str) -> None:
    """Write to stderr in one call, because the ranks may be writing, too."""
    sys.stderr.write(f"simdist: {text}\n")
    sys.stderr.flush()


@contextmanager
def _ending_on_signals(jobs: Sequence[Job], heed: Sequence[signal.Signals]) -> Iterator[None]:
    """Turn the first signal that asks for an end into an exception inside this block, so that the ranks end too.

    Those that the ranks handle are forwarded to them instead; those that are ignored stay so.
    """
    first_s: dict[int, float] = {}
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped:  # the ranks are being ended, which takes a moment
            return
        since_s = time.monotonic() - first_s.setdefault(number, time.monotonic())
        heard = number in heed and any(job.signal(number) for job in jobs)
        if number != signal.SIGUSR1 and (not heard or since_s >= _PATIENCE_S):
            stopped.append(number)
            raise _Stopped(number)

    ignored = {number for number in ENDING if signal.getsignal(number) is signal.SIG_IGN}
    with handled({*ENDING, *heed} - ignored, stop):
        yield
