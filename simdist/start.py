"""Start: what Ctrl-C does while simdist's own programs load their modules.

Loading takes half a second, and there is nothing to save: the user gets one line instead of a traceback through the
imports. Other programs that import simdist keep their own handlers.
"""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

__all__ = ["over"]

# The program's name while it loads: that of the command, or the one that `python -m` gives any module.
_NAMES = ("simdist", "-m")


def over() -> None:
    """All modules are loaded: from now on Ctrl-C raises KeyboardInterrupt as usual."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: a module being imported might catch or wrap an exception."""
    with suppress(OSError):
        os.write(2, b"simdist: interrupted\n")
    os._exit(128 + number)


# If Ctrl-C is ignored, as in a background job, or already has another handler, that stays.
if sys.argv[0].rpartition("/")[2] in _NAMES and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    with suppress(ValueError):  # only the main thread may set a handler
        signal.signal(signal.SIGINT, _leave)
