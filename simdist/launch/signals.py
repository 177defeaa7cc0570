"""Signals: which of them a process handles, what they are called, and a block that they do not interrupt."""

import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["ENDING", "deferred", "handled", "listens", "signal_in", "signal_words"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a program to end."""


@contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], Any] | int) -> Iterator[None]:
    """Handle these signals so inside this block, unless another handler is set in it.

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
