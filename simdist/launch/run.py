"""Run: runs a program on ranks of a world, and returns its results."""

import json
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from pathlib import Path
from reprlib import Repr
from typing import Any, TextIO

import numpy as np

from simdist import environment
from simdist.cluster import Cluster, find_cluster, preset
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, CollectiveMismatch, RankFailed, WorldUnavailable, unknown_name
from simdist.launch.job import Death, Job
from simdist.launch.mpirun import in_job
from simdist.launch.pickling import packed, unpacked
from simdist.launch.room import BYTES_PER_RANK, check_room
from simdist.launch.signals import how_ended, signal_in, signal_words
from simdist.trace import Span, Trace
from simdist.words import counted

__all__ = ["Run", "run"]

_HAS_DIED = re.compile(r"rank (\d+) of \d+ \(process (\d+)\) has died")
"""The message of the error that surviving ranks raise about a dead one."""


@dataclass(frozen=True)
class Run:
    """The outcome of a run.

    Attributes:
        results: what the program returned, by rank.
        trace: the record of all ranks.
        elapsed_s: from the start of the first rank to the end of the last; virtual seconds in the virtual
            world, wall seconds under MPI.
    """

    results: list[Any]
    trace: Trace
    elapsed_s: float

    def __repr__(self) -> str:
        with np.printoptions(threshold=4, edgeitems=2, linewidth=sys.maxsize):
            return f"<run of {self.elapsed_s:.4g} s: results {_BRIEFLY.repr(self.results)}; {self.trace!r}>"


_BRIEFLY = Repr()
_BRIEFLY.maxlist, _BRIEFLY.maxdict, _BRIEFLY.maxother = 4, 3, 60


def run(
    program: Callable[..., Any],
    ranks: int = 4,
    *,
    world: str = "virtual",
    cluster: Cluster | str | None = None,
    args: tuple[Any, ...] = (),
    timeout_s: float | None = None,
    record: bool = True,
    check: bool = True,
) -> Run:
    """Run program(comm, *args) once per rank; virtual ranks inside an MPI job, once in each process, with a warning.

    Args:
        program: any function, also of a notebook cell; its first argument is the communicator. For MPI it must
            itself import a module that registers extensions, such as an algorithm: its processes know no others.
        world: "virtual": greenlets in this process, on a simulated cluster; "mpi": processes under mpirun.
        cluster: the machine that a virtual run simulates and `auto` chooses for, or its name; else 'this-machine'.
        args: virtual ranks all get these same objects, and must not write to them; processes get copies.
        timeout_s: how long a rank of the MPI world may wait before the job ends; by default SIMDIST_TIMEOUT_S, or 30.
        record: whether to keep the spans of messages and operations.
        check: whether collectives check that all ranks pass matching arguments.

    Raises:
        Exception: what the first rank to fail raised, with a note that names the rank and has its traceback.
        RankFailed: a rank was killed or exited in the middle of its program.
        DeadlockError, DeadlineError: ranks waited for messages that never came.
        WorldUnavailable: no MPI is installed, a job's files have no room, or this is already a rank of an MPI job.
        ArgumentError: ranks below 1 or too many for this machine, an unknown name, or an argument of a wrong type.
    """
    _check(program, world, args, timeout_s)
    cluster = None if cluster is None else find_cluster(cluster)
    check_room(ranks, world)
    ranks = int(ranks)  # NumPy's own integers become Python's
    if world == "virtual":
        _warn_within_job(ranks)
        results, spans, elapsed_s = run_virtual(program, ranks, cluster or preset("this-machine"), args, record, check)
        return Run(results, Trace(spans, ranks), elapsed_s)
    task = {"program": program, "args": args, "cluster": cluster, "record": record, "check": check}
    return _run_mpi(task, ranks, timeout_s)


def _check(program: Callable[..., Any], world: str, args: Sequence[object], timeout_s: object) -> None:
    """Refuse arguments outside their limits."""
    if not callable(program):
        raise ArgumentError(f"program is {program!r}; needs a function of a communicator")
    if not isinstance(world, str) or world not in BYTES_PER_RANK:
        raise unknown_name("world", world, BYTES_PER_RANK)
    if not isinstance(args, tuple | list):
        raise ArgumentError(f"args is {args!r}; needs a tuple of the program's further arguments")
    if isgeneratorfunction(program) or iscoroutinefunction(program) or isasyncgenfunction(program):
        raise ArgumentError(f"program is {program!r}, with yield or async, whose body a call does not run")
    _check_takes(program, args)
    if timeout_s is not None and not (isinstance(timeout_s, int | float | np.integer | np.floating) and timeout_s > 0):
        raise ArgumentError(f"timeout_s is {timeout_s!r}; needs a number of seconds above 0")


def _check_takes(program: Callable[..., Any], args: Sequence[object]) -> None:
    """Refuse a program that cannot be called with a communicator and these arguments."""
    try:
        takes = signature(program)
    except (TypeError, ValueError):  # what is written in C may not say
        return
    try:
        takes.bind(None, *args)
    except TypeError as error:
        more = f" and {counted(len(args), 'argument')} of args" if args else ""
        raise ArgumentError(f"program is called with a communicator{more}; this one cannot be: {error}") from None


def _warn_within_job(ranks: int) -> None:
    """Warn on rank 0 of an MPI job, which may have been meant to be these ranks."""
    rank, size, _ = environment.place() or (0, 1, 1)
    if rank == 0 and size > 1:
        warnings.warn(
            f"sd.run in a job of {size} real ranks: each process that calls it runs {counted(ranks, 'virtual rank')} "
            "of its own; start the script without mpirun, or call program(sd.world()) on every rank",
            RuntimeWarning,
            stacklevel=3,
        )


def _run_mpi(task: dict[str, Any], ranks: int, timeout_s: float | None) -> Run:
    """Start the ranks, pass them the task through a private folder, and collect what they leave there."""
    if in_job():
        raise WorldUnavailable("this process is already a rank of an MPI job: call program(sd.world()) on every rank")
    limit_s = environment.timeout_s() if timeout_s is None else float(min(timeout_s, environment.LONGEST_S))
    with Job(ranks, limit_s) as job:
        job.leave("task.pickle", packed(task))
        job.leave("path.json", json.dumps([str(Path(entry).absolute()) for entry in sys.path]).encode())
        with (job.folder / "mpirun.out").open("wb") as output:
            job.start([sys.executable, "-m", "simdist.launch.rank_process"], output)
        relays = [
            _Relay(job.folder / f"rank-{rank}.{name}", stream)
            for rank in range(ranks)
            for name, stream in (("out", sys.stdout), ("err", sys.stderr))
        ]
        while (code := job.poll()) is None and not _failures(job):
            for relay in relays:
                relay.pass_on()
        for relay in relays:
            relay.pass_on(last=True)
        if code != 0:
            job.poll()  # what made ranks fail may take another one a moment to tell
            _note_reported_death(job)
            while job.deaths and job.poll() is None:
                pass  # a death caused the failure; mpirun may report more about it before it ends or is overdue
            raise _first_failure(job)
        return _collect(job)


@dataclass
class _Relay:
    """Forwards what a rank writes to a file, which may not exist yet."""

    _path: Path
    _stream: TextIO  # this process's stdout or stderr: Python's, so that notebooks and test runners see it
    _position: int = 0

    def pass_on(self, last: bool = False) -> None:
        """Forward new output, in whole lines until the last call."""
        try:
            if self._path.stat().st_size == self._position:
                return
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return
        whole = len(data) if last else data.rfind(b"\n") + 1
        self._position += whole
        encoding = getattr(self._stream, "encoding", None) or "utf-8"  # which the ranks mostly write in, too
        self._stream.write(data[:whole].decode(encoding, errors="backslashreplace"))
        self._stream.flush()


# -- what the ranks have left in the folder -----------------------------------------------------------


def _failures(job: Job) -> list[Path]:
    return list(job.folder.glob("rank-*.failure.json"))


def _note_reported_death(job: Job) -> None:
    """Register a death that made another rank fail before this process noticed it."""
    for path in _failures(job):
        found = _HAS_DIED.search(json.loads(path.read_text())["summary"])
        if found and not job.deaths:
            rank, pid = int(found[1]), int(found[2])
            job.deaths.append(Death(rank, pid, time.monotonic(), how_ended(pid)))


def _first_failure(job: Job) -> BaseException:
    """The error of the rank that failed first; a mismatch, which all ranks raise, only if none tells its cause."""
    told = sorted(
        (json.loads(path.read_text()) for path in _failures(job)),
        key=lambda failure: (failure["summary"].startswith(f"{CollectiveMismatch.__name__}:"), failure["at_s"]),
    )
    death = job.deaths[0] if job.deaths else None
    if death is not None and (
        not told or death.at_s < told[0]["at_s"] or f"{death.pid}) has died" in told[0]["summary"]
    ):
        return _death(job, death)
    if told:
        return _raised(job, told[0])
    end = f"was ended: {job.overdue}" if job.overdue else "ended without results"
    launcher = _titled("its launcher says", _tail(job.folder / "mpirun.out"))
    return RankFailed(f"the job of {job.ranks} ranks {end}{launcher}")


def _death(job: Job, death: Death) -> RankFailed:
    """The error for a rank that ended in the middle of its program."""
    launcher = _tail(job.folder / "mpirun.out")
    how = death.how
    if not how:
        how = signal_words(number) if (number := signal_in(launcher)) else "has died"
    text = f"rank {death.rank} of {job.ranks} (process {death.pid}) {how} in the middle of its program"
    text += _titled("its last output", _tail(job.folder / f"rank-{death.rank}.err"))
    if death.how == signal_words(signal.SIGTERM):  # sent from outside; the launcher may know more
        text += _titled("its launcher says", launcher)
    return RankFailed(text)


def _raised(job: Job, failure: dict[str, Any]) -> BaseException:
    """A rank's own exception, as far as it could be pickled."""
    rank = failure["rank"]
    path = job.folder / f"rank-{rank}.failure.pickle"
    error: BaseException
    try:
        error = unpacked(path.read_bytes())
        if not isinstance(error, BaseException):
            raise TypeError(f"it came as {error!r}")
    except Exception as problem:
        error = RankFailed(f"rank {rank} raised {failure['summary']} ({type(problem).__name__} on the way)")
    if failure["trace"]:
        error.add_note(f"raised on rank {rank} of {job.ranks}:\n{failure['trace']}")
    return error


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-2000:].decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _titled(title: str, text: str) -> str:
    return f"; {title}:\n{text}" if text else ""


def _collect(job: Job) -> Run:
    results, spans, starts_s, ends_s = [], [], [], []
    for rank in range(job.ranks):
        try:
            facts = json.loads((job.folder / f"rank-{rank}.facts.json").read_text())
            result = (job.folder / f"rank-{rank}.result.pickle").read_bytes()
        except FileNotFoundError:
            raise RankFailed(f"rank {rank} of {job.ranks} left without a result") from None
        try:
            results.append(unpacked(result))
        except Exception as error:
            error.add_note(f"while the result of rank {rank} of {job.ranks} was unpickled")
            raise
        spans += [Span(*row) for row in facts["rows"]]
        starts_s.append(facts["start_s"])
        ends_s.append(facts["end_s"])
    return Run(results, Trace(spans, job.ranks), max(ends_s) - min(starts_s))
