"""Watchdog: a thread in each rank's process that ends every wait by a deadline.

The program only notes what it waits for, by one assignment (see `Line`). Five times a second the watchdog checks
whether that is still the same wait, and reads the board, where all ranks of the node note what they do. It ends the
job, and says why, when

    a wait exceeds the deadline                             DeadlineError
    a wait is for a rank whose program has ended            DeadlockError
    a rank has died, or left with a nonzero exit code       RankFailed
    work failed on a stream while its rank is blocked       RankFailed
    the process that started this one is gone               (without a message)

It runs while the program is blocked inside MPI, because mpi4py releases the GIL there.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from simdist.comm.board import ABSENT, AT_WORK, FAILED, LEFT, Board, Slot, alive
from simdist.comm.ends import Ends
from simdist.comm.line import END, EXIT, START, WORK, Line, Wait, awaited, traceback_of
from simdist.comm.open_requests import remedy
from simdist.errors import DeadlineError, DeadlockError, RankFailed, SimdistError
from simdist.words import listed

__all__ = ["GRACE_S", "Watchdog"]

TICK_S = 0.2
_PAUSE_S = 1.0  # a longer time between two rounds means that this process, or the machine, was paused
GRACE_S = 1.0
"""How long a wait for a rank that has left may still be ended by a message that it sent before."""
_ANSWER_S = 0.8  # how long ranks may take to report where they are
_STUCK_S = 5.0  # after which this rank ends the job if the one that announced the end has not


@dataclass(eq=False, repr=False)
class Watchdog:
    """Watches this rank.

    Args:
        rank, size: in the job.
        timeout_s: how long a wait may last.
        end: ends the job with an exit code; does not return.
        tell: reports why the job ends.
        launcher_pid: the process, besides the parent, whose end ends this one; 0 for none.

    Attributes:
        lines: the streams it watches; lines[0] is the main one.
        board: the board of the node, once there is one.
        survives: whether the job continues when a rank dies.
    """

    rank: int
    size: int
    timeout_s: float
    end: Callable[[int], None]
    tell: Callable[[SimdistError], None]
    launcher_pid: int = 0

    def __post_init__(self) -> None:
        self.lines = [Line("main")]
        self.board: Board | None = None
        self.survives = False
        self._parent_pid = os.getppid()
        self._seen: dict[Line, tuple[Wait, float]] = {}  # of each stream: its wait, and its length so far
        self._conceded_s = 0.0  # when another rank was first seen to end the job
        self._concluding = threading.Lock()
        self._answered = False
        self._awake_s = 0.0  # since this process began, or resumed after a pause
        self._ends = Ends()  # of the node's other ranks
        self._dead: set[int] = set()
        self._stopped = False

    @property
    def start_timeout_s(self) -> float:
        """How long MPI may take to start, and to free what ranks share, which depends on the load of the machine."""
        return max(30.0, self.timeout_s)

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._watch, name="simdist watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped = True

    def line(self, name: str) -> Line:
        """Add a stream to watch."""
        line = Line(name)
        self.lines.append(line)
        return line

    # -- the rounds ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        last_s = time.monotonic()
        while not self._stopped:
            self._sleep()
            now_s = time.monotonic()
            # A pause of the whole job (suspend, or SIGSTOP and SIGCONT) does not count as waiting.
            passed_s, last_s = min(now_s - last_s, _PAUSE_S), now_s
            if not self._stopped:
                self._round(passed_s)

    def _sleep(self) -> None:
        """Sleep until the next round, or until a rank of this node dies."""
        for slot in self._ends.wait(TICK_S):
            self._dead.add(slot)
            if self.board is not None:
                self._check_death(self.board, slot)  # at once, because mpirun is about to kill this process

    def _round(self, passed_s: float) -> None:
        if self.orphaned:
            self.end(1)
        self._awake_s = self._awake_s + passed_s if passed_s < _PAUSE_S else 0.0
        seen = {}  # anew: a wait refers to its communicator, which would stay for a stream that has ended
        for line in self.lines:
            wait = line.waiting
            if wait is not None:
                before, waited_s = self._seen.get(line, (None, 0.0))
                seen[line] = wait, waited_s + passed_s if before is wait else 0.0
        self._seen = seen
        if self.board is not None:
            self.board.beat(self._doing())
            if self.board.asked and not self._answered:
                self._answered = True
                self.board.answer(self._report())
            if FAILED in self.board.states():  # another rank reports, and ends the job
                self._concede()
                return
            self._watch_ranks(self.board)
            self._check_ranks(self.board)
        self._check_waits()

    @property
    def orphaned(self) -> bool:
        """Whether the process that started this one is gone."""
        return os.getppid() != self._parent_pid or self.abandoned

    @property
    def abandoned(self) -> bool:
        """Whether the process that started the job is gone."""
        return self.launcher_pid != 0 and not alive(self.launcher_pid)

    def _concede(self) -> None:
        """Leave the end of the job to the rank that announced it, for a limited time."""
        self._conceded_s = self._conceded_s or time.monotonic()
        if time.monotonic() - self._conceded_s > _STUCK_S:
            self.end(1)

    def _watch_ranks(self, board: Board) -> None:
        """Watch the processes of the node's other ranks."""
        if len(self._ends) == len(board) - 1:
            return
        for i, state in enumerate(board.states()):
            if state == ABSENT or i == board.mine or i in self._ends:
                continue
            if not self._ends.add(i, board.slot(i).pid):
                self._dead.add(i)

    def _check_ranks(self, board: Board) -> None:
        mine, states = board.mine, board.states()
        for i, state in enumerate(states):
            if i in self._dead:
                self._check_death(board, i)
            elif state == LEFT and mine is not None and states[mine] == AT_WORK:
                slot = board.slot(i)
                if slot.code and slot.since_s > GRACE_S:
                    self.conclude(RankFailed(f"rank {slot.rank} left with exit code {slot.code}"), slot.code)

    def _check_death(self, board: Board, i: int) -> None:
        states = board.states()
        if states[i] == AT_WORK and FAILED not in states and not self.survives:
            slot = board.slot(i)
            self.conclude(RankFailed(f"rank {slot.rank} of {self.size} (process {slot.pid}) has died"), 1, brief=True)

    def _check_waits(self) -> None:
        main = self._seen.get(self.lines[0])
        for line in self.lines:
            if line in self._seen:
                self._check_wait(line, *self._seen[line])
            if line.failures and main and main[0][0] != WORK and main[1] > GRACE_S:
                words = f"work on stream {line.name!r} of rank {self.rank} failed"
                self.conclude(RankFailed(f"{words}:\n{traceback_of(line.failures[0])}"), 1)

    def _check_wait(self, line: Line, wait: Wait, waited_s: float) -> None:
        if waited_s > GRACE_S and (gone := self._gone(wait)):
            words = f"rank {self.rank} {line.words(wait)}, but rank {gone.rank} has left: its program has ended"
            self.conclude(DeadlockError(words), 1)
        limit_s = self.start_timeout_s if wait[0] in (START, END) else self.timeout_s
        if waited_s > limit_s and wait[0] not in (WORK, EXIT):
            words = f"rank {self.rank} {line.at_length(wait, waited_s)} so far"
            self.conclude(DeadlineError(f"{words}; the deadline is {limit_s:g} s"), 1)
        if wait[0] == EXIT and self.board is not None and self._awake_s > GRACE_S:
            for slot in self.board.slots():
                silent = slot.state == AT_WORK and slot.silent_s > self.timeout_s
                if silent and (alive(slot.pid) or not self.survives):
                    self.conclude(RankFailed(f"rank {slot.rank} {_silence(slot)}"), 1)

    def _gone(self, wait: Wait) -> Slot | None:
        """A rank that this wait needs, and whose program has ended; None if there is none."""
        if self.board is None or LEFT not in self.board.states():
            return None
        every, ranks = awaited(wait)
        left = {s.rank: s for s in self.board.slots() if s.state == LEFT and s.since_s > GRACE_S}
        gone = [left[r] for r in ranks if r in left]
        return gone[0] if gone and (len(gone) == len(ranks) or not every) else None

    # -- the end ---------------------------------------------------------------------------------------

    def conclude(self, error: SimdistError, code: int, brief: bool = False) -> None:
        """Report why the job ends, once per node, with what every rank is doing; then end it.

        Args:
            brief: report only the reason, at once.
        """
        if not self._concluding.acquire(blocking=False):
            return
        board = self.board
        if board is not None:
            if not board.claim():
                self._concluding.release()
                self._concede()
                return
            if not brief:
                self._await_reports(board)
        self.tell(error if brief else type(error)(f"{error}\n{self._overview()}"))
        if board is not None:
            board.leave(FAILED, code)
        self.end(code)

    def _await_reports(self, board: Board) -> None:
        """Ask all ranks to report where they are, and wait for their answers."""
        board.answer(self._report())
        board.ask()
        last_s = time.monotonic() + _ANSWER_S
        while board.missing(2 * GRACE_S) and time.monotonic() < last_s:
            time.sleep(0.01)

    def _doing(self) -> str:
        """A description of what the streams of this rank do."""
        texts = []
        for line in self.lines:
            wait, waited_s = self._seen.get(line, (None, 0.0))
            if wait is not None or line is self.lines[0]:
                texts.append(line.at_length(wait, waited_s))
        return "; ".join(texts)

    def _report(self) -> str:
        """The stacks of this rank's busy streams."""
        busy = [line for line in self.lines if line is self.lines[0] or line in self._seen]
        return "".join(("" if line.name == "main" else f"  stream {line.name!r}:\n") + line.stack() for line in busy)

    def _overview(self) -> str:
        """What every rank of the node does, and where it is in the program."""
        if self.board is None:
            return self._report()
        slots = sorted(self.board.slots(), key=lambda s: s.rank)
        rows = ["What the ranks do:" if len(slots) == self.size else f"What the {len(slots)} ranks of this node do:"]
        rows += [f"  rank {s.rank} {_state(s)}" for s in slots if s.state != ABSENT]
        if ABSENT in self.board.states():
            rows.append(f"  {sum(s.state == ABSENT for s in slots)} of the ranks have not started yet")
        if len(slots) == self.size:
            rows += remedy([_state(s) for s in slots])
        for report in dict.fromkeys(s.report for s in slots if s.report):
            rows.append(f"In the program, {listed(s.rank for s in slots if s.report == report)}:")
            rows.append(report.rstrip())
        return "\n".join(rows)


def _state(slot: Slot) -> str:
    if slot.state == LEFT:
        code = f", with exit code {slot.code}" if slot.code else ""  # of `raise SystemExit(3)` it is not known
        return f"has left{code}, {slot.since_s:.1f} s ago"
    if slot.state == FAILED:
        return "has failed"
    if not alive(slot.pid):
        return f"has died; its last report: it {slot.doing}"
    return _silence(slot) if slot.silent_s > 2 * GRACE_S else slot.doing


def _silence(slot: Slot) -> str:
    return (
        f"(process {slot.pid}) has not responded for {slot.silent_s:.1f} s: it is stopped, or in native code that "
        f"holds the GIL; its last report: it {slot.doing}"
    )
