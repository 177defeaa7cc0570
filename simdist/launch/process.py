"""Process: how one ends, as Linux tells in /proc."""

import os
from pathlib import Path

from simdist.launch.signals import signal_words

__all__ = ["ENDED_ITSELF", "ending", "how_ended"]

ENDED_ITSELF = "ended itself"
"""How `how_ended` begins for a process that no signal has ended."""
_ENDED = "Z", "X"  # states: a zombie, or dead
_EXITING = 4  # PF_EXITING, of the flags


def how_ended(pid: int) -> str:
    """How a process ended, in words, while it is still a zombie; empty before that, and once it has been reaped."""
    state, *_, code = _stat(pid)
    if state not in _ENDED:
        return ""
    status = int(code)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return signal_words(number) if number else f"{ENDED_ITSELF} with exit code {os.WEXITSTATUS(status)}"


def ending(pid: int) -> bool:
    """Whether a process is about to end: it is not a zombie yet, but runs no more of its program."""
    state, *fields = _stat(pid)
    return state not in _ENDED and bool(int(fields[5]) & _EXITING)


def _stat(pid: int) -> list[str]:
    """What /proc tells of a process after its name: the state first, the status of its end last; see proc(5)."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        found = []
    return found or ["", *["0"] * 6]
