"""Start: what Ctrl-C does while simdist's own programs load their modules, and where Python would drop it.

Loading takes half a second, and there is nothing to save: the user gets one line instead of a traceback through the
imports. Other programs that import simdist keep their own handlers.
"""

import os
import signal
import sys
from contextlib import suppress
from threading import Timer, main_thread
from types import FrameType
from typing import Any

__all__ = ["over"]

# The program's name while it loads: that of the command, or the one that `python -m` gives any module.
_NAMES = ("simdist", "-m")
_LATER_S = 0.05


def over() -> None:
    """All modules are loaded: from now on Ctrl-C raises KeyboardInterrupt as usual, but everywhere."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _again


def _again(dropped: Any) -> None:
    """Called by Python for an exception that it drops, as in what runs when an array is freed: Ctrl-C comes again."""
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        # Not yet: Python would drop it here, too. To the main thread, so that it ends a wait there.
        later = Timer(_LATER_S, signal.pthread_kill, (main_thread().ident, signal.SIGINT))
        later.daemon = True
        later.start()
    else:
        sys.__unraisablehook__(dropped)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: a module being imported might catch or wrap an exception."""
    with suppress(OSError):
        os.write(2, b"simdist: interrupted\n")
    os._exit(128 + number)


# If Ctrl-C is ignored, as in a background job, or already has another handler, that stays.
if sys.argv[0].rpartition("/")[2] in _NAMES and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    with suppress(ValueError):  # only the main thread may set a handler
        signal.signal(signal.SIGINT, _leave)
