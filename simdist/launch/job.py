"""Job: ranks under mpirun on this machine, from their start until all of them are cleaned up."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from simdist.comm.board import ABSENT, AT_WORK, FAILED, LEFT, Board, Slot, alive, private_folder
from simdist.comm.ends import Ends
from simdist.comm.guard import BOARD, LAUNCHER
from simdist.comm.leftovers import drop, shared_files, unused_files
from simdist.comm.line import START
from simdist.errors import WorldUnavailable
from simdist.launch.mpirun import find_mpirun
from simdist.launch.signals import ENDED_ITSELF, deferred, how_ended, is_ending, listens, signal_words
from simdist.words import listed

__all__ = ["Death", "Job"]

_PATIENCE_S = 2.0  # for steps that should take no time
_START_S = 120.0  # until the first rank has started
_MOMENT_S = 0.1  # from the first sign of the launcher's end until it has ended


class Death(NamedTuple):
    """A rank that ended in the middle of its program: when, on the monotonic clock, and how, as far as known."""

    rank: int
    pid: int
    at_s: float
    how: str


class Job:
    """A job; a context manager, at whose end its ranks, its folder and their shared memory are gone.

    Args:
        timeout_s: how long a rank may wait before it ends the job; where all ranks are silent for longer, it is ended.

    Attributes:
        folder: the job's folder, private to this user.
        board: what each rank reports to be doing.
        deaths: the ranks that ended in the middle of their programs, the first one first.
        overdue: why the job had to be ended from here, or that its launcher was killed; otherwise empty.
    """

    def __init__(self, ranks: int, timeout_s: float, survive: bool = False) -> None:
        self.ranks = ranks
        self.survive = survive
        self.deaths: list[Death] = []
        self.overdue = ""
        self._timeout_s = timeout_s
        self._mpirun = find_mpirun()
        self._process: subprocess.Popen[bytes] | None = None
        self._ends = Ends()
        self._started_s = self._looked_s = self._resumed_s = 0.0
        self._began_s = time.time()  # as files have it

    def __enter__(self) -> "Job":
        try:
            Path.cwd()
        except FileNotFoundError:
            gone = "ranks start in this process's working directory, which has been removed"
            raise WorldUnavailable(gone) from None
        self.folder = private_folder()
        path = self.folder / "board"
        try:
            with self._writing():
                Board.create(path, self.ranks)
                for rank in range(self.ranks):
                    pipe = self.folder / f"pipe-{rank}"
                    os.mkfifo(pipe, 0o600)
                    self._ends.add_pipe(rank, os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
                self.board = Board(path)
        except BaseException:  # also Ctrl-C
            self._ends.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Around the writing of the job's files: turn an error of the disk into WorldUnavailable."""
        try:
            yield
        except OSError as error:
            raise WorldUnavailable(f"no room for a job's files in {self.folder.parent}: {error.strerror}") from error

    def leave(self, name: str, data: bytes) -> None:
        """Write a file for the ranks into the job's folder; raises WorldUnavailable if there is no room for it."""
        with self._writing():
            (self.folder / name).write_bytes(data)

    def __exit__(self, *_: object) -> None:
        with deferred():  # an impatient Ctrl-C would leave ranks behind
            try:
                self._stop()
            finally:
                self._ends.close()
                self.board.close()
                shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, words: Sequence[str], output: Any = None, told: Mapping[str, str] | None = None) -> None:
        """Run `words` on every rank.

        Args:
            output: where the launcher writes, and the ranks unless they redirect it; None for this process's
                own output.
            told: additional environment variables for the ranks.

        Raises:
            WorldUnavailable: survival of a death was asked for, and this MPI does not support it.
        """
        command = self._mpirun.command(self.ranks, words, self.survive)
        variables = self._mpirun.variables(self.ranks, self.folder)
        variables["SIMDIST_TIMEOUT_S"] = repr(float(self._timeout_s))
        variables |= {BOARD: str(self.folder / "board"), LAUNCHER: str(os.getpid()), **(told or {})}
        self._started_s = time.monotonic()
        with deferred():  # until it is known what to end
            self._process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for this process, which ends the job properly
            )

    def poll(self, wait_s: float = 0.05) -> int | None:
        """The exit code of the job; None while it runs. It waits this long for something to happen."""
        if self._process is None:
            return None
        known = len(self.deaths)
        self._watch_ranks()
        ended, code = self._ends.wait(wait_s), self._launcher_code(self._process)
        for rank in ended:
            self._note_end(rank)
        if code is None and len(self.deaths) > known:
            code = self._launcher_code(self._process, _MOMENT_S)
            if (code or 0) < 0:  # a killed launcher closes its files first, and the ranks die of that
                del self.deaths[known:]
        if code is None:
            self.overdue = self._why_overdue()
            if not self.overdue:
                return None
            survived = self.survive and self._ended(self.board.slots())
            self._stop()
            return self._failure_code() or int(not survived)
        for rank in self._ends.wait(0.0):
            self._note_end(rank)
        return (128 - code if code < 0 else code) or self._failure_code()

    def _launcher_code(self, launcher: subprocess.Popen[Any], wait_s: float = 0.0) -> int | None:
        """The launcher's exit code; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            launcher.wait(wait_s)
        if (launcher.returncode or 0) < 0:  # the ranks die of that, too
            self.overdue = self.overdue or f"its launcher {signal_words(-launcher.returncode)}"
        return launcher.returncode

    def signal(self, number: int) -> bool:
        """Send a signal to all running ranks that handle it; returns whether there are any.

        It would kill a rank that has not installed its handler yet.
        """
        pids = [slot.pid for slot in self._running() if slot.state == AT_WORK and listens(slot.pid, number)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(pids)

    def _failure_code(self) -> int:
        """Not 0 if a rank failed: a launcher's own exit code is not always reliable."""
        if self.deaths and not self.survive:
            return 1
        return max((slot.code for slot in self.board.slots() if slot.state in (LEFT, FAILED)), default=0)

    # -- the ranks' processes ------------------------------------------------------------------------------

    def _watch_ranks(self) -> None:
        """From now on notice the end of every rank that has started."""
        if len(self._ends) < self.ranks:
            for slot in self.board.slots():
                if slot.pid and slot.rank not in self._ends and not self._ends.add(slot.rank, slot.pid):
                    self._note_end(slot.rank)

    def _note_end(self, rank: int) -> None:
        slot = self.board.slot(rank)
        if self.overdue or slot.state != AT_WORK or any(death.rank == rank for death in self.deaths):
            return
        if FAILED in self.board.states():  # this rank was ended because of that
            return
        now_s = time.monotonic()
        while alive(slot.pid):  # its files are closed, but its end takes a moment
            if time.monotonic() > now_s + 0.5:
                return
            time.sleep(0.0005)
        how = how_ended(slot.pid)
        if how.startswith(ENDED_ITSELF) and (not slot.doing or START in slot.doing):
            # MPI has ended it, perhaps because of another, which has left the shared memory but not yet its files.
            for other in self.board.slots():
                if other.pid and other.rank != rank and is_ending(other.pid):
                    self._note_end(other.rank)
        self.deaths.append(Death(rank, slot.pid, now_s, how))

    def _why_overdue(self) -> str:
        """Why the job should have ended by itself by now; empty if it should not."""
        slots, now_s = self.board.slots(), time.monotonic()
        if now_s - self._looked_s > 1.0:  # this process was stopped, and the ranks with it, perhaps
            self._resumed_s = now_s
        self._looked_s = now_s
        if self.deaths and not self.survive and now_s - self.deaths[0].at_s > _PATIENCE_S:
            return f"it went on {_PATIENCE_S:g} s after rank {self.deaths[0].rank} had died"
        if failed := [s.rank for s in slots if s.state == FAILED and s.since_s > _PATIENCE_S]:
            return f"it went on {_PATIENCE_S:g} s after {listed(failed)} had failed"
        if self._ended(slots):
            # After a death, MPI may not be able to end by itself.
            limit_s = (5 if self.deaths else 30) * _PATIENCE_S
            over = all(s.since_s > limit_s for s in slots if s.state in (LEFT, FAILED))
            return f"it went on {limit_s:g} s after all programs had ended" if over else ""
        if at_work := [s for s in slots if s.state == AT_WORK]:
            limit_s = self._timeout_s + 3 * _PATIENCE_S
            over = all(s.silent_s > limit_s for s in at_work) and now_s - self._resumed_s > _PATIENCE_S
            return f"{listed(s.rank for s in at_work)} had not responded for {limit_s:g} s" if over else ""
        absent = listed(i for i, s in enumerate(slots) if s.state == ABSENT)
        return f"{absent} had not started after {_START_S:g} s" if now_s - self._started_s > _START_S else ""

    def _ended(self, slots: Sequence[Slot]) -> bool:
        """Whether the programs of all ranks have ended, except of those that died where the others continue."""
        dead = {death.rank for death in self.deaths} if self.survive else set()
        states = [s.state for i, s in enumerate(slots) if i not in dead]
        return bool(states) and all(state in (LEFT, FAILED) for state in states)

    # -- the end -------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """End every process of the job that is left."""
        if (process := self._process) is None:
            return
        files = [name for slot in self._running() for name in shared_files(slot.pid)]  # if MPI is still starting
        if process.poll() is None:
            _signal_all(process.pid, signal.SIGTERM)
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                _signal_all(process.pid, signal.SIGKILL)
                process.wait(10.0)
        for slot in self._running():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(slot.pid, signal.SIGKILL)
        drop([*files, *unused_files(self._began_s)])

    def _running(self) -> list[Slot]:
        """The ranks whose processes still exist."""
        return [slot for slot in self.board.slots() if slot.pid and self._is_mine(slot)]

    def _is_mine(self, slot: Slot) -> bool:
        """Whether the process is still the rank's, and not another one with the same number."""
        with suppress(OSError):
            return os.fsencode(self.folder) in Path(f"/proc/{slot.pid}/environ").read_bytes()
        return False


def _signal_all(group: int, number: int) -> None:
    """Send a signal to a process group, if it still exists."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)
