"""Start: what Ctrl-C does while simdist's own programs are still loading their modules.

That takes half a second, in which there is nothing to lose: the user gets a line, and no traceback through the
imports. Other programs that import simdist keep what they have.
"""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

__all__ = ["over"]

# What stands for the program's name meanwhile: the command's own, or of all that `python -m` runs.
_NAMES = ("simdist", "-m")


def over() -> None:
    """All is loaded, and from now on Ctrl-C raises KeyboardInterrupt as ever."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: an exception might be caught, or wrapped, by what is being imported."""
    with suppress(OSError):
        os.write(2, b"simdist: interrupted\n")
    os._exit(128 + number)


# Where Ctrl-C is ignored, as in a background job, or somebody else's already, it stays so.
if sys.argv[0].rpartition("/")[2] in _NAMES and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    with suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGINT, _leave)
