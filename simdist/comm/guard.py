"""Guard: makes the end of one rank, however it comes, the end of the job, and never the wait of the others.

On an exception its traceback is printed, and the job ends. A rank that leaves waits for the others to end
their programs: if it leaves with an exit code other than 0, or if another turns out to wait for it, the job
ends within 3 s. A death is seen by the others, and by the launcher.
"""

import atexit
import faulthandler
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from simdist import environment
from simdist.comm.board import FAILED, LEFT, Board
from simdist.comm.ends import closed_first
from simdist.comm.leftovers import drop, files_of_start, shared_files
from simdist.comm.line import EXIT, traceback_of
from simdist.comm.watchdog import GRACE_S, Watchdog
from simdist.errors import RankFailed, SimdistError

__all__ = ["BOARD", "LAUNCHER", "Guard", "guard"]

BOARD = "SIMDIST_BOARD"
LAUNCHER = "SIMDIST_LAUNCHER_PID"


class Guard:
    """Watches over this process, from now until it ends.

    Attributes:
        watchdog: the thread that does so.
        abort: ends the job by MPI, with an exit code; None before MPI runs.
        meet: starts to wait for all ranks of the job to end: returns a function that tells whether they have.
        drains: what to wait for before this rank has ended: the work on its streams.
        frees: what to free when all have ended, by name: names give the order, which must be the same on all ranks.
        quiet: print no tracebacks: somebody else shows them.
        patience_s: how long somebody else is given to end the job before this process does.
    """

    def __init__(self) -> None:
        rank, size, _ = environment.place() or (0, 1, 1)
        launcher_pid = int(os.environ.get(LAUNCHER, 0))
        self.watchdog = Watchdog(rank, size, environment.timeout_s(), self.end, _print, launcher_pid)
        self.abort: Callable[[int], Any] | None = None
        self.meet: Callable[[], Callable[[], bool]] | None = None
        self.drains: list[Callable[[], Any]] = []
        self.frees: dict[str, Callable[[], Any]] = {}
        self.quiet = False
        self.patience_s = 0.0
        self._pid = os.getpid()
        self._exit = sys.exit
        self._noted = 0, -1  # an exit code, and how many messages there had been
        if BOARD in os.environ:
            self._report_to(Path(os.environ[BOARD]), rank)
        self._install()
        self.watchdog.start()

    def _report_to(self, path: Path, rank: int) -> None:
        """Show the launcher what this rank does, on its board."""
        try:
            self.watchdog.board = Board(path, rank)
            # Never written to, but closed when this process ends: so the launcher knows who ended first.
            self._pipe = closed_first(os.open(path.with_name(f"pipe-{rank}"), os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            if not self.watchdog.abandoned:
                raise
            self.end(1)  # the launcher was gone before this rank came
        self.watchdog.board.take(rank)

    def _install(self) -> None:
        sys.excepthook = self._uncaught
        threading.excepthook = self._uncaught_in_thread
        sys.exit = self._exiting
        atexit.register(self._depart)
        if not faulthandler.is_enabled():
            faulthandler.enable(file=2)  # a crash in native code prints where Python was
        main_thread = threading.current_thread() is threading.main_thread()
        if main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # Python's own handler does not run while the rank is blocked inside MPI.
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    # -- failing ---------------------------------------------------------------------------------------

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.fail(error.with_traceback(trace))

    def _uncaught_in_thread(self, args: Any) -> None:
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            self.fail(args.exc_value)

    def fail(self, error: BaseException) -> None:
        """Print what this rank raised, and end the job."""
        if os.getpid() != self._pid:  # a child of this rank, which may fail as it likes
            traceback.print_exception(error)
            return
        rank, size = self.watchdog.rank, self.watchdog.size
        if not self.quiet:
            lines = traceback_of(error).splitlines()
            head = f"simdist: rank {rank} of {size} failed with {type(error).__name__}, and the job ends"
            _write("\n".join([head, *(f"[rank {rank}] {line}" for line in lines)]))
        if self.watchdog.board is not None:
            self.watchdog.board.leave(FAILED, 1)
        self.end(1)

    def end(self, code: int) -> NoReturn:
        """End the job with this exit code; from any thread."""
        code = code or 1
        drop([*shared_files(), *files_of_start()])  # first of all: another rank may have mpirun end this one too
        if self.watchdog.abandoned:  # by who would have tidied up
            shutil.rmtree(Path(os.environ[BOARD]).parent, ignore_errors=True)
        if not self.watchdog.orphaned:
            time.sleep(self.patience_s + 0.1)  # so that what has been said is out before mpirun adds its own
        signal.alarm(3)  # ends the process should MPI not manage
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                continue
        if self.abort is not None:
            self.abort(code)
        os._exit(code)

    # -- leaving -----------------------------------------------------------------------------------------

    def _exiting(self, status: str | int | None = None, /) -> NoReturn:
        """sys.exit, noting the code where it can be the process's."""
        if threading.current_thread() is threading.main_thread():
            self.note_exit(status)
        self._exit(status)

    def note_exit(self, status: object) -> None:
        """Remember the exit code that the program is about to leave with."""
        code = 0 if status is None else status & 0xFF if isinstance(status, int) else 1
        self._noted = code, self._messages()

    def _messages(self) -> int:
        return sum(line.count for line in self.watchdog.lines)

    def _depart(self) -> None:
        """At this process's end: wait for the other ranks, so that none is left waiting for this one."""
        if os.getpid() != self._pid:
            return
        noted, messages = self._noted
        code = noted if messages == self._messages() else 0  # else the exit was caught, and the program went on
        board = self.watchdog.board
        try:
            for drain in () if code else self.drains:
                drain()
        except BaseException as error:  # of work on a stream that nobody has waited for
            self.fail(error)
        if board is not None:
            board.leave(LEFT, code)
        if self.meet is not None:
            self._await_others(self.meet(), code)
        self.watchdog.stop()
        if self.abort is not None and self.watchdog.timeout_s < float("inf"):
            # What is left to do is MPI's; Python cannot watch over it any more.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(max(60, int(self.watchdog.timeout_s)))

    def _await_others(self, ended: Callable[[], bool], code: int) -> None:
        line = self.watchdog.lines[0]
        line.waiting = EXIT, None, None, 0
        start_s, pause_s = time.monotonic(), 1e-4
        while not ended():
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.002)  # often enough for what MPI has under way
            if code and time.monotonic() - start_s > 2 * GRACE_S:
                error = RankFailed(f"rank {self.watchdog.rank} left with exit code {code} while others were at work")
                self.watchdog.conclude(error, code)
        line.waiting = None
        if not self.watchdog.survives:  # to free takes all ranks, and some may be dead
            for name in sorted(self.frees):
                self.frees[name]()


@cache
def guard() -> Guard:
    """The one guard of this process; the first call sets it up."""
    return Guard()


def _print(error: SimdistError) -> None:
    _write(f"simdist: {type(error).__name__}: {error}")


def _write(text: str) -> None:
    """To stderr, in one piece, so that the ranks' lines do not mix."""
    try:
        sys.stderr.flush()
        os.write(2, f"{text}\n".encode())
    except (OSError, ValueError, AttributeError):
        return
