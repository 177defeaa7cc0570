"""Guard: makes any abnormal end of one rank the end of the job, so that no other rank waits for it.

On an exception the guard prints the traceback and ends the job. A rank that leaves waits for the others to end their
programs: if its exit code is not 0, or another rank waits for it, the job ends within 3 s. The guard learns the code
from calls of `sys.exit`, `exit` and `quit`, not from `raise SystemExit`. The other ranks and the launcher notice a
death.
"""

import atexit
import builtins
import faulthandler
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn
from weakref import WeakSet

from simdist import environment
from simdist.comm.board import FAILED, LEFT, Board
from simdist.comm.ends import closed_first
from simdist.comm.leftovers import drop, files_of_start, shared_files
from simdist.comm.line import END, EXIT, traceback_of
from simdist.comm.open_requests import OpenRequests, listed_below
from simdist.comm.watchdog import GRACE_S, Watchdog
from simdist.errors import RankFailed, SimdistError

__all__ = ["BOARD", "LAUNCHER", "Guard", "guard"]

BOARD = "SIMDIST_BOARD"
LAUNCHER = "SIMDIST_LAUNCHER_PID"


class Guard:
    """Watches this process until it ends.

    Attributes:
        watchdog: the watchdog of this process.
        abort: ends the job through MPI, with an exit code; None before MPI runs.
        finalize: ends MPI when all ranks have ended; None before it runs, and after a death that the job survived.
        meet: starts a nonblocking wait for the end of all ranks; returns a function that tests whether it has come.
        drains: functions that wait for the work on this rank's streams, called at its end.
        frees: functions to call when all ranks have ended, by name: in the order of names, which is the same on all.
        open: the requests that this rank has not waited for yet.
        groups: this rank's groups, each of which can list the messages that nobody has received.
        quiet: print no tracebacks, because the process that started the job shows them.
        patience_s: how long that process has to end the job before this one does.
    """

    def __init__(self) -> None:
        rank, size, _ = environment.place() or (0, 1, 1)
        launcher_pid = int(os.environ.get(LAUNCHER, 0))
        self.watchdog = Watchdog(rank, size, environment.timeout_s(), self.end, _print, launcher_pid)
        self.abort: Callable[[int], Any] | None = None
        self.finalize: Callable[[], None] | None = None
        self.meet: Callable[[], Callable[[], bool]] | None = None
        self.drains: list[Callable[[], Any]] = []
        self.frees: dict[str, Callable[[], Any]] = {}
        self.open = OpenRequests()
        self.groups: WeakSet[Any] = WeakSet()  # those that are freed vanish
        self.quiet = False
        self.patience_s = 0.0
        self._pid = os.getpid()
        self._exit = sys.exit
        self._noted = 0, -1  # an exit code, and the number of messages at that time
        if BOARD in os.environ:
            self._report_to(Path(os.environ[BOARD]), rank)
        self._install()
        self.watchdog.start()

    def _report_to(self, path: Path, rank: int) -> None:
        """Open the launcher's board, which shows what this rank does."""
        try:
            self.watchdog.board = Board(path, rank)
            # Never written to; its closing tells the launcher which rank ended first.
            self._pipe = closed_first(os.open(path.with_name(f"pipe-{rank}"), os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            if not self.watchdog.abandoned:
                raise
            self.end(1)  # the launcher has ended already
        self.watchdog.board.take(rank)

    def _install(self) -> None:
        sys.excepthook = self._uncaught
        threading.excepthook = self._uncaught_in_thread
        for module, name in ((sys, "exit"), (builtins, "exit"), (builtins, "quit")):
            setattr(module, name, self._exiting)
        atexit.register(self._depart)
        if not faulthandler.is_enabled():
            faulthandler.enable(file=2)  # a crash in native code prints the Python stack
        main_thread = threading.current_thread() is threading.main_thread()
        if main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # Python's handler cannot run while the rank is blocked inside MPI.
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    # -- failing ---------------------------------------------------------------------------------------

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.fail(error.with_traceback(trace))

    def _uncaught_in_thread(self, args: Any) -> None:
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            self.fail(args.exc_value)

    def fail(self, error: BaseException) -> None:
        """Print the error of this rank, and end the job."""
        if os.getpid() != self._pid:  # a forked child, whose failure does not end the job
            traceback.print_exception(error)
            return
        if not self.quiet:
            self._tell(error)
        if self.watchdog.board is not None:
            self.watchdog.board.leave(FAILED, 1)
        self.end(1)

    def _tell(self, error: BaseException) -> None:
        rank, trace, name = self.watchdog.rank, traceback_of(error), type(error).__name__
        failed = f"simdist: rank {rank} of {self.watchdog.size} failed with"
        lines = [f"[rank {rank}] {line}" for line in trace.splitlines()]
        whole = "\n".join([f"{failed} {name}, and the job ends", *lines])
        self.tell(trace, whole, lambda teller: f"{failed} the same {name} as rank {teller}")

    def tell(self, what: str, whole: str, again: Callable[[int], str] | None = None) -> None:
        """Print the whole text to stderr, unless another rank of the node has told the same: then `again`, if given.

        Args:
            what: what the text tells; it may differ between ranks that tell the same.
            again: the text instead, given the rank that has told it.
        """
        board = self.watchdog.board
        with nullcontext() if board is None else board.turn(what) as teller:
            if teller is None:
                _write(whole)
            elif again is not None:
                _write(again(teller))

    def end(self, code: int) -> NoReturn:
        """End the job with this exit code, which is not 0; any thread may call it."""
        drop([*shared_files(), *files_of_start()])  # first, because mpirun may kill this process at any moment
        if self.watchdog.abandoned:  # the launcher cannot clean up
            shutil.rmtree(Path(os.environ[BOARD]).parent, ignore_errors=True)
        if not self.watchdog.orphaned:
            time.sleep(self.patience_s + 0.1)  # lets the report appear before mpirun's own messages
        # Ends the process if MPI does not. An alarm would be the program's, where that has a handler for it.
        faulthandler.dump_traceback_later(3, exit=True, file=2)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        if self.abort is not None:
            self.abort(code)
        os._exit(code)

    # -- leaving -----------------------------------------------------------------------------------------

    def _exiting(self, code: str | int | None = None) -> NoReturn:
        """In place of sys.exit, exit and quit: note the code if this is the main thread."""
        if threading.current_thread() is threading.main_thread():
            self.note_exit(code)
        self._exit(code)

    def note_exit(self, status: object) -> None:
        """Note the exit code with which the program is about to leave."""
        code = 0 if status is None else status & 0xFF if isinstance(status, int) else 1
        self._noted = code, self._messages()

    def _messages(self) -> int:
        return sum(line.count for line in self.watchdog.lines)

    def _depart(self) -> None:
        """At the end of this process: wait for the other ranks, so that none waits for this one in vain."""
        if os.getpid() != self._pid:
            return
        noted, messages = self._noted
        code = noted if messages == self._messages() else 0  # otherwise the exit was caught, and the program went on
        if sys.excepthook != self._uncaught and hasattr(sys, "last_value"):
            code = code or 1  # an exception has ended the program, which has put a hook of its own in place of this one
        board = self.watchdog.board
        try:
            for drain in () if code else self.drains:
                drain()
        except BaseException as error:  # of stream work without a `wait`
            self.fail(error)
        if board is not None:
            board.leave(LEFT, code)
        if self.meet is not None:
            self._await_others(self.meet(), code)
        self.watchdog.stop()
        if self.abort is not None and self.watchdog.timeout_s < float("inf"):
            # Only MPI's own end is left, which Python cannot watch.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(max(60, int(self.watchdog.timeout_s)))
        if self.finalize is not None:
            self.finalize()

    def _await_others(self, ended: Callable[[], bool], code: int) -> None:
        line = self.watchdog.lines[0]
        line.waiting = EXIT, None, None, 0
        start_s, pause_s = time.monotonic(), 1e-4
        while not ended():
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.002)  # often enough for MPI to progress its messages
            if code and time.monotonic() - start_s > 2 * GRACE_S:
                error = RankFailed(f"rank {self.watchdog.rank} left with exit code {code} while others were at work")
                self.watchdog.conclude(error, code)
        line.waiting = None
        if self.watchdog.survives:  # what follows is between all ranks, and some may be dead
            return
        if not code:
            self._report_remains()
        line.waiting = END, None, None, 0
        for name in sorted(self.frees):
            self.frees[name]()
        line.waiting = None

    def _report_remains(self) -> None:
        """Say which messages and requests this rank leaves behind."""
        groups = sorted(self.groups, key=lambda group: group.context)
        remains = [*(row for group in groups for row in group.unreceived()), *self.open.rows()]
        if remains:
            _write(listed_below(f"simdist: rank {self.watchdog.rank} has ended, but", remains))


@cache
def guard() -> Guard:
    """The guard of this process; the first call sets it up."""
    return Guard()


def _print(error: SimdistError) -> None:
    _write(f"simdist: {type(error).__name__}: {error}")


def _write(text: str) -> None:
    """Write to stderr in one call, so that the lines of ranks do not mix."""
    with suppress(OSError, ValueError, AttributeError):  # the program may have replaced or closed it
        sys.stderr.flush()
    with suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="backslashreplace"))  # as Python's stderr does
