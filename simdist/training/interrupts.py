"""Interrupts: signals that all ranks act on together, at the end of a step."""

import os
import signal
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

import numpy as np

from simdist.collectives import all_reduce
from simdist.comm import Communicator

__all__ = ["Interrupts", "ending"]

_PATIENCE_S = 1.0  # mpirun and the terminal may both pass on one Ctrl-C; what comes later is another


class Interrupts:
    """Inside this block signals wait for the end of the step, where all ranks learn of them.

        with Interrupts() as interrupts:
            for step in range(steps):
                train()
                if interrupts.agreed(comm):         # the same on all ranks, whichever of them heard it
                    save(…)
                    break

    A second Ctrl-C or SIGTERM, a second or more after the first and before the step is over, takes effect at
    once, as without this block. Outside the main thread, which alone gets signals, none are caught. SIGINT and SIGTERM
    that are ignored, as in a script's background job, stay so.

    Args:
        signals: which ones; SIGINT, SIGTERM and SIGUSR1 if none are given.
    """

    def __init__(self, *signals: signal.Signals) -> None:
        self.signals = signals or (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        self._handlers: list[_Handler] = []
        self._handled: list[int] = []

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._handlers = [_Handler.install(number) for number in self.signals]
            self._handled = [handler.count for handler in self._handlers]
        return self

    def __exit__(self, *_: object) -> None:
        for handler in self._handlers:
            handler.remove()
        self._handlers = []

    @property
    def rung(self) -> bool:
        """Whether this rank got a signal that `agreed` has not returned yet."""
        return any(handler.count > handled for handler, handled in zip(self._handlers, self._handled, strict=True))

    def agreed(self, comm: Communicator) -> list[signal.Signals]:
        """The signals that came to any rank since the last call. All ranks must call.

        A signal that reaches some ranks later than others may be returned after two steps.

        Cost: an all-reduce of a byte a signal.
        """
        before = [handler.count for handler in self._handlers]
        heard = np.zeros(len(self.signals), np.uint8)
        heard[: len(before)] = [now > then for now, then in zip(before, self._handled, strict=True)]
        all_reduce(heard, comm, op="max")
        # A signal that came meanwhile counts as returned if its kind is returned now; else the next call returns it.
        self._handled = [
            handler.count if now else then for handler, now, then in zip(self._handlers, heard, before, strict=False)
        ]
        for handler in self._handlers:
            handler.first_s = None
        return [number for number, now in zip(self.signals, heard, strict=True) if now]


def ending(heard: Iterable[signal.Signals]) -> signal.Signals | None:
    """The first of these signals that ends a run; SIGUSR1 asks only for a checkpoint."""
    return next((number for number in heard if number != signal.SIGUSR1), None)


class _Handler:
    """The handler of one signal: counts it. Virtual ranks, which share one process, share it too."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number
        self.count = 0
        self.first_s: float | None = None  # when it came first since it was last handled
        self._users = 1
        self._before: Any = None

    @classmethod
    def install(cls, number: signal.Signals) -> "_Handler":
        """Install one, or share the one that is installed; for a signal that is ignored, one that never counts."""
        there = signal.getsignal(number)
        if isinstance(there, _Handler):
            there._users += 1
            return there
        handler = cls(number)
        ignored = there is signal.SIG_IGN and number != signal.SIGUSR1  # see `simdist train`
        handler._before = there if ignored else signal.signal(number, handler)
        return handler

    def remove(self) -> None:
        """The last user restores the previous handler."""
        self._users -= 1
        if self._users == 0:
            self._restore()

    def _restore(self) -> None:
        # None: a handler that Python did not install, and cannot restore.
        signal.signal(self.number, signal.SIG_DFL if self._before is None else self._before)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        self.count += 1
        if self.first_s is None:
            self.first_s = now_s
        elif self.number != signal.SIGUSR1 and now_s - self.first_s >= _PATIENCE_S:
            self._restore()
            os.kill(os.getpid(), self.number)
