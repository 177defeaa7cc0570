"""Trial: call an answer, and turn exceptions, deadlocks and endless loops into findings."""

import linecache
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import simdist
from simdist.cluster import Cluster, Device, Link
from simdist.errors import DeadlockError, UnmatchedMessage
from simdist.launch import Run, run
from simdist.launch.signals import handled
from simdist.puzzles.verdict import Finding
from simdist.words import counted

__all__ = ["PLAIN", "SECOND", "STEPS", "Failed", "call", "trial"]

_MOST_CPU_SECONDS = 2.0  # processor time, so that other programs do not count
_MOST_SECONDS = 20.0
_PACKAGE = str(Path(simdist.__file__).parent)
_AT_ONCE = Device("at once", 1e18, 1e18, 1e18)


def _cluster(name: str, wire: Link) -> Cluster:
    """Each rank on a separate node, connected by messages only; no send starts before its receive."""
    return Cluster(name, _AT_ONCE, inside=wire, between=wire, devices_per_node=1, eager_bytes=0)


STEPS = _cluster("steps", Link(1.0, 1e18))
"""A message arrives one second after it is sent, whatever its length."""
SECOND = 1 << 20
"""Bytes that take a second on `PLAIN`."""
PLAIN = _cluster("plain", Link(1e-9, SECOND))
"""A message of n bytes occupies both ports for n / SECOND seconds; its latency is negligible."""


class Failed(Exception):
    """Ends the judgement; the finding, whose arguments these are, says why."""

    def __init__(self, what: str, found: str, expected: str, why: str = "") -> None:
        super().__init__(what)
        self.finding = Finding(False, what, found, expected, why)


class _TooLong(BaseException):
    """The answer takes too long; an ordinary `except` does not catch this."""


def trial(program: Callable[..., Any], ranks: int, cluster: Cluster = PLAIN) -> Run:
    """Run program(comm) on virtual ranks.

    Raises:
        Failed: it raised, hung, took too long, or left a message or a request behind.
    """
    with _caught(f"on {counted(ranks, 'rank')}"), warnings.catch_warnings():
        warnings.simplefilter("error", UnmatchedMessage)
        return run(program, ranks, cluster=cluster)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args).

    Raises:
        Failed: it raised, took too long, or returned None.
    """
    with _caught("called"):
        found = function(*args)
    if found is None:
        raise Failed("what your function returns", "None", "what the task describes")
    return found


@contextmanager
def _caught(where: str) -> Iterator[None]:
    """Turn any exception in this block into a finding."""
    try:
        with _alarm():
            yield
        return
    except _TooLong:
        found = f"stopped after {_MOST_CPU_SECONDS:g} s of work, or {_MOST_SECONDS:g} s"
        expected, why = "that it ends", "is there a loop that never ends?"
    except DeadlockError as error:
        found, expected = "it hangs", "that it ends"
        why = f"{error}\nA send ends only after its receive has begun: which rank sends first, and which receives?"
    except UnmatchedMessage as error:
        found, expected = "it ends too early", "every message received, every isend and irecv waited for"
        why = str(error)
    except Exception as error:
        found, expected = "it raises", "no exception"
        why = f"{type(error).__name__}: {error}{_place(error)}"
    raise Failed(f"your function, {where}", found, expected, why)


def _place(error: BaseException) -> str:
    """The last line outside this package that an error passed through."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_PACKAGE):
            line = linecache.getline(file, trace.tb_lineno).strip()
            found = f"\nin line {trace.tb_lineno}{f': {line}' if line else ''}"
        trace = trace.tb_next
    notes = [note.split(",")[0] for note in getattr(error, "__notes__", ())]
    return "".join([found, *(f"\n{note}" for note in notes)])


@contextmanager
def _alarm() -> Iterator[None]:
    """Stop this block when its time is over, if the system supports that."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise _TooLong

    timers = {
        signal.SIGPROF: (signal.ITIMER_PROF, _MOST_CPU_SECONDS),
        signal.SIGALRM: (signal.ITIMER_REAL, _MOST_SECONDS),
    }
    with handled(timers, ring):
        try:
            for timer, limit_s in timers.values():
                signal.setitimer(timer, limit_s)
            yield
        finally:
            for timer, _ in timers.values():
                signal.setitimer(timer, 0)
