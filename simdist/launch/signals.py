"""Signals: which of them a process handles, what they are called, and a block that they do not interrupt."""

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

__all__ = ["ENDING", "deferred", "listens", "signal_in", "signal_words"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a program to end."""


@contextmanager
def deferred() -> Iterator[None]:
    """Let the handlers of signals that ask for an end wait for the end of this block, or drop them if it raises.

    A process without a handler is ended by them, as always. Outside the main thread, which alone runs handlers, this
    does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    handlers = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def listens(pid: int, number: int) -> bool:
    """Whether a process has a handler for this signal; assumed where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return not Path("/proc/self/status").exists()
    caught = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def signal_words(number: int) -> str:
    """'was killed by signal 9 (SIGKILL)'."""
    try:
        name = f" ({signal.Signals(number).name})"
    except ValueError:
        name = ""
    return f"was killed by signal {number}{name}"


def signal_in(text: str) -> int:
    """The signal in a launcher's message about the end of a rank; 0 if there is none."""
    found = re.search(r"signal (\d+)", text)
    return int(found[1]) if found else 0
