"""Signals: which of them a process handles, how it ended by one, and a block that they do not interrupt."""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from simdist.comm.board import ENDED, stat_of

__all__ = [
    "ENDED_ITSELF",
    "ENDING",
    "deferred",
    "handled",
    "how_ended",
    "is_ending",
    "listens",
    "signal_in",
    "signal_words",
]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a program to end."""
ENDED_ITSELF = "ended itself"
"""How `how_ended` begins for a process that no signal has ended."""
_EXITING = 4  # PF_EXITING, of the flags


@contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], Any] | int) -> Iterator[None]:
    """Let this handler take these signals inside this block, unless another is set in it.

    Args:
        handler: as of `signal.signal`. Outside the main thread, which alone runs handlers, none is set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            # None: a handler that Python did not install, and cannot restore.
            signal.signal(number, signal.SIG_DFL if old is None else old)


@contextmanager
def deferred() -> Iterator[None]:
    """Let the handlers of signals that ask for an end wait for the end of this block, or drop them if it raises.

    A process without a handler is ended by them, as always.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    with handled([number for number in ENDING if callable(signal.getsignal(number))], note):
        yield
    if came:
        signal.raise_signal(came[0])


def listens(pid: int, number: int) -> bool:
    """Whether a process exists and has a handler for this signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def how_ended(pid: int) -> str:
    """How a process ended, in words, while it is still a zombie; empty before that, and once it has been reaped."""
    found = stat_of(pid)
    if not found or found[0] not in ENDED:
        return ""
    status = int(found[-1])
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return signal_words(number) if number else f"{ENDED_ITSELF} with exit code {os.WEXITSTATUS(status)}"


def is_ending(pid: int) -> bool:
    """Whether a process is about to end: it is not a zombie yet, but runs no more of its program."""
    found = stat_of(pid)
    return bool(found) and found[0] not in ENDED and bool(int(found[6]) & _EXITING)


def signal_words(number: int) -> str:
    """'was killed by signal 9 (SIGKILL)'."""
    try:
        name = f" ({signal.Signals(number).name})"
    except ValueError:
        name = ""
    why = ", as where /dev/shm is full" if number == signal.SIGBUS else ""  # MPI's own part of it has no other sign
    return f"was killed by signal {number}{name}{why}"


def signal_in(text: str) -> int:
    """The signal in a launcher's message about the end of a rank; 0 if there is none."""
    found = re.search(r"signal (\d+)", text)
    return int(found[1]) if found else 0
