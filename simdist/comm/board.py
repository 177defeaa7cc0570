"""Board: what each rank of a node is doing, in shared memory.

Every rank writes to its own slot and reads those of the others, without messages. So a rank knows the state of another
one that computes, has been stopped, or has died.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simdist.errors import WorldUnavailable

__all__ = ["ABSENT", "AT_WORK", "ENDED", "FAILED", "LEFT", "Board", "Slot", "alive", "private_folder", "stat_of"]

ABSENT, AT_WORK, LEFT, FAILED = range(4)
ENDED = "Z", "X"  # states of a process, in Linux: a zombie, or dead
_LAST_WORD, _TURN = range(2)  # the bytes of the file that are locked, whatever they hold

_ROW = np.dtype(
    [
        *(("rank", np.int32), ("pid", np.int32), ("state", np.int32), ("code", np.int32)),
        *(("beat_s", np.float64), ("since_s", np.float64), ("asks", np.int32), ("answered", np.int32)),
        *(("doing", "S1024"), ("report", "S8192"), ("told", "S32")),
    ]
)


class Slot(NamedTuple):
    """One rank's entry on the board.

    Attributes:
        rank, pid: its global rank and its process; pid is 0 before the rank has taken its slot.
        state: ABSENT, AT_WORK, LEFT (its program has ended) or FAILED (by an exception).
        code: its exit code, once it has left or failed.
        silent_s: the time since its last heartbeat; a rank at work sends five a second.
        since_s: how long it has been in this state.
        doing: a description of what it does.
        report: where in its program it is, once asked for.
    """

    rank: int
    pid: int
    state: int
    code: int
    silent_s: float
    since_s: float
    doing: str
    report: str


class Board:
    """The slots of a node's ranks, in a file that is mapped into memory.

    Args:
        path: the file, made by `create`. It may be deleted once every process has opened it.
        mine: the slot that this process writes; None for a reader.
    """

    def __init__(self, path: Path, mine: int | None = None) -> None:
        self._file = path.open("r+b")
        self._rows = np.memmap(path, _ROW, mode="r+")
        self.mine = mine

    @staticmethod
    def create(path: Path, slots: int) -> None:
        """Make the file, for this user alone, with empty slots.

        It is written in full: a sparse file on a full disk would kill the processes that map it by SIGBUS.

        Raises:
            OSError: the file cannot be made, as on a full disk.
        """
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(bytes(slots * _ROW.itemsize))

    @classmethod
    def temporary(cls, slots: int) -> Path:
        """Make the file in a new private folder, which the caller removes."""
        path = private_folder() / "board"
        try:
            cls.create(path, slots)
        except OSError:
            shutil.rmtree(path.parent, ignore_errors=True)
            raise
        return path

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        del self._rows

    def __len__(self) -> int:
        return len(self._rows)

    # -- writing the own slot --------------------------------------------------------------------------

    def take(self, rank: int) -> None:
        """Take the slot: this rank is at work from now on."""
        now_s = time.monotonic()
        self._write(rank=rank, pid=os.getpid(), doing=b"", beat_s=now_s, since_s=now_s, state=AT_WORK)

    def beat(self, doing: str) -> None:
        """Send a heartbeat, with what this rank does."""
        self._write(doing=_bytes(doing), beat_s=time.monotonic())

    def leave(self, state: int, code: int) -> None:
        """Record the end of the program: LEFT or FAILED, with this exit code."""
        self._write(code=code, since_s=time.monotonic(), state=state)

    def answer(self, report: str) -> None:
        """Report where the program is."""
        self._write(report=_bytes(report), answered=1)

    def _write(self, **fields: object) -> None:
        """Write these fields in order: the state last, so that a reader of the state sees the rest, too."""
        if self.mine is not None:
            row = self._rows[self.mine]
            for name, value in fields.items():
                row[name] = value

    # -- reading -----------------------------------------------------------------------------------------

    def slots(self) -> list[Slot]:
        """The current contents of all slots."""
        return [self.slot(i) for i in range(len(self._rows))]

    def slot(self, i: int) -> Slot:
        """The current contents of slot i."""
        row, now_s = self._rows[i], time.monotonic()
        state = int(row["state"])  # read first, because it is written last
        return Slot(
            rank=int(row["rank"]),
            pid=int(row["pid"]),
            state=state,
            code=int(row["code"]),
            silent_s=now_s - float(row["beat_s"]),
            since_s=now_s - float(row["since_s"]),
            doing=_text(row["doing"]),
            report=_text(row["report"]),
        )

    def states(self) -> list[int]:
        """The states alone, which are read most often."""
        return [int(state) for state in self._rows["state"]]

    # -- reporting the end of the job ----------------------------------------------------------------------

    def claim(self) -> bool:
        """Become the one rank of the node that reports why the job ends; False if another one already is."""
        return self._lock(_LAST_WORD)

    def _lock(self, byte: int) -> bool:
        """Lock this byte of the file, at most until the end of this process; False if another process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError:
            return False
        return True

    @contextmanager
    def turn(self, text: str, wait_s: float = 0.5) -> Iterator[int | None]:
        """A turn to tell this text, while no other rank of the node has one: the rank that told the same, or None.

        A rank that has not had its turn after wait_s tells the text all the same.
        """
        last_s = time.monotonic() + wait_s
        while not (mine := self._lock(_TURN)) and time.monotonic() < last_s:
            time.sleep(0.001)
        digest = md5(text.encode(errors="replace"), usedforsecurity=False).hexdigest().encode()
        tellers = self._rows["rank"][self._rows["told"] == digest].tolist() if mine else []
        try:
            yield tellers[0] if tellers else None
        finally:
            if not tellers:
                self._write(told=digest)
            if mine:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _TURN)

    def ask(self) -> None:
        """Ask all ranks to report where their programs are."""
        self._write(asks=1)

    @property
    def asked(self) -> bool:
        """Whether any rank asks."""
        return bool(self._rows["asks"].any())

    def missing(self, silent_s: float) -> int:
        """How many ranks at work have not answered, of those with a heartbeat in the last silent_s seconds."""
        rows = self._rows
        recent = rows["beat_s"] > time.monotonic() - silent_s
        return int(((rows["state"] == AT_WORK) & (rows["answered"] == 0) & recent).sum())


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")  # a file's name need not be text


def _text(field: bytes) -> str:
    return bytes(field).decode(errors="replace")


def private_folder() -> Path:
    """Make a folder for a job's files that only this user can enter, where temporary files are.

    Raises:
        WorldUnavailable: none can be made.
    """
    try:
        return Path(tempfile.mkdtemp(prefix="simdist-"))
    except OSError as error:
        raise WorldUnavailable(f"no room for a job's files, which TMPDIR gives: {error.strerror}") from error


def alive(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
    if found := stat_of(pid):
        return found[0] not in ENDED
    if Path("/proc/self/stat").exists():
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def stat_of(pid: int) -> list[str]:
    """What Linux tells of a process after its name: the state first, and the status of its end last; see proc(5).

    Empty if there is no such process, or no /proc.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # a long name is cut, anywhere
    except OSError:
        return []
    return text.rpartition(")")[2].split()
