"""Process: how one ends, as Linux tells in /proc."""

import os

from simdist.comm.board import ENDED, stat_of
from simdist.launch.signals import signal_words

__all__ = ["ENDED_ITSELF", "ending", "how_ended"]

ENDED_ITSELF = "ended itself"
"""How `how_ended` begins for a process that no signal has ended."""
_EXITING = 4  # PF_EXITING, of the flags


def how_ended(pid: int) -> str:
    """How a process ended, in words, while it is still a zombie; empty before that, and once it has been reaped."""
    found = stat_of(pid)
    if not found or found[0] not in ENDED:
        return ""
    status = int(found[-1])
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return signal_words(number) if number else f"{ENDED_ITSELF} with exit code {os.WEXITSTATUS(status)}"


def ending(pid: int) -> bool:
    """Whether a process is about to end: it is not a zombie yet, but runs no more of its program."""
    found = stat_of(pid)
    return bool(found) and found[0] not in ENDED and bool(int(found[6]) & _EXITING)
