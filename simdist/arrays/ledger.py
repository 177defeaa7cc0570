"""Ledger: how many bytes are alive at each moment, by category.

Like the meter it is ambient: code that makes a lasting array reports it with `hold`, and the caller may keep a
ledger. An array counts until its last reference is gone.
"""

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from simdist.arrays.kind import owner
from simdist.errors import unknown_name

__all__ = ["CATEGORIES", "Ledger", "Moment", "hold", "inheriting", "recorded", "release"]

T = TypeVar("T")

CATEGORIES = ("parameters", "gradients", "optimizer state", "activations", "communication", "buffers")
"""What memory is for. Activations are what backward needs of a batch; buffers are what passes between layers;
communication is what a collective works in, and what of a model only passes through a rank."""

_PASSING = "buffers"


class Moment(NamedTuple):
    """What was alive after an array came or went.

    Attributes:
        time_s: by the ledger's clock.
        live: bytes, in the order of CATEGORIES.
        at: what was running, such as a layer; when an array was freed, that of the last allocation.
    """

    time_s: float
    live: tuple[int, ...]
    at: str

    @property
    def total(self) -> int:
        """All categories together."""
        return sum(self.live)

    def of(self, category: str) -> int:
        """The bytes of one category."""
        return self.live[CATEGORIES.index(category)]

    @property
    def largest(self) -> str:
        """The category that takes most."""
        return CATEGORIES[self.live.index(max(self.live))]


class Ledger:
    """Counts the arrays that are held, each piece of memory once, however many views of it there are.

    What an operation allocates and frees before it returns is not counted, but a collective reports its buffers.
    Threads may share a ledger.

    Args:
        clock: gives seconds, a communicator's for example.
        keep: how many of the latest moments to keep.

    Attributes:
        peak: the first moment of the largest total.
        peaks: by category, the most that it ever held.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, keep: int = 1 << 16) -> None:
        self._clock = clock
        self._live = [0] * len(CATEGORIES)
        self._at = ""
        self._lock = Lock()
        self._known: dict[int, tuple[weakref.ref[Any], int, int]] = {}  # by id: its end, its category, its bytes
        # An array may end inside any statement, also one of this class: its end is noted, and counted afterwards.
        self._ended: deque[tuple[int, float]] = deque()
        self._moments: deque[Moment] = deque(maxlen=keep)
        self.peak = Moment(clock(), tuple(self._live), "")
        self.peaks = dict.fromkeys(CATEGORIES, 0)

    @property
    def now(self) -> Moment:
        """What is alive."""
        with self._lock:
            self._settle()
            return Moment(self._clock(), tuple(self._live), self._at)

    @property
    def moments(self) -> list[Moment]:
        """The record, in the order of time."""
        with self._lock:
            self._settle()
            return list(self._moments)

    def begin(self) -> None:
        """Forget the moments so far, and with them the peaks; what is alive still counts."""
        with self._lock:
            self._settle()
            self._moments.clear()
            self.peak = Moment(self._clock(), tuple(self._live), "")
            self.peaks = dict(zip(CATEGORIES, self._live, strict=True))

    def hold(self, category: str, thing: Any, at: str = "") -> None:
        """Count the memory of every array in a nest of tuples and lists, until it is gone.

        What is held already keeps its category; but what passed by as a buffer becomes what it is held for now.

        Args:
            category: one of CATEGORIES.
            at: what is at work.

        Raises:
            UnknownNameError: there is no such category.
        """
        if category not in CATEGORIES:
            raise unknown_name("category", category, CATEGORIES)
        with self._lock:
            self._settle()
            self._hold(CATEGORIES.index(category), thing, at)

    def release(self, thing: Any) -> None:
        """Count an array as a buffer again: it stays, to be used again, but nobody needs what is in it."""
        with self._lock:
            self._settle()
            key = id(owner(thing))
            known = self._known.get(key)
            if known is not None:
                end, category, num_bytes = known
                buffers = CATEGORIES.index(_PASSING)
                self._known[key] = end, buffers, num_bytes
                self._live[category] -= num_bytes
                self._live[buffers] += num_bytes
                self._mark(self._clock())

    def _hold(self, category: int, thing: Any, at: str) -> None:
        if isinstance(thing, tuple | list):
            for part in thing:
                self._hold(category, part, at)
        elif getattr(thing, "ndim", 0) and thing.nbytes:
            whole = owner(thing)
            known = self._known.get(id(whole))
            if known is None:
                end = weakref.ref(whole, self._note(id(whole)))
            elif CATEGORIES[known[1]] == _PASSING != CATEGORIES[category]:
                end = known[0]
                self._live[known[1]] -= known[2]
            else:
                return
            self._known[id(whole)] = end, category, whole.nbytes
            self._live[category] += whole.nbytes
            self._at = at
            self._mark(self._clock())

    def _note(self, key: int) -> Callable[[Any], None]:
        ended, clock = self._ended, self._clock
        return lambda _: ended.append((key, clock()))

    def _settle(self) -> None:
        """Count out what has ended."""
        while self._ended:
            key, time_s = self._ended.popleft()
            _, category, num_bytes = self._known.pop(key)
            self._live[category] -= num_bytes
            self._mark(time_s)

    def _mark(self, time_s: float) -> None:
        if self._moments:  # a second stream's clock may be behind the first's, and after a run there is none
            time_s = max(time_s, self._moments[-1].time_s)
        moment = Moment(time_s, tuple(self._live), self._at)
        self._moments.append(moment)
        if moment.total > self.peak.total:
            self.peak = moment
        for category, live in zip(CATEGORIES, self._live, strict=True):
            self.peaks[category] = max(self.peaks[category], live)


_ledger: ContextVar[Ledger | None] = ContextVar("simdist_ledger", default=None)


def hold(category: str, thing: Any, at: str = "") -> None:
    """Tell the ledger of this context, if there is one, that the arrays in `thing` stay: see `Ledger.hold`."""
    ledger = _ledger.get()
    if ledger is not None:
        ledger.hold(category, thing, at)


def release(thing: Any) -> None:
    """Tell the ledger of this context, if there is one, that an array is a mere buffer again: see `Ledger.release`."""
    ledger = _ledger.get()
    if ledger is not None:
        ledger.release(thing)


@contextmanager
def recorded(ledger: Ledger) -> Iterator[None]:
    """Tell this ledger of all that is held inside this block, by the thread or the rank at hand."""
    token = _ledger.set(ledger)
    try:
        yield
    finally:
        _ledger.reset(token)


def inheriting(function: Callable[..., T]) -> Callable[..., T]:
    """The function, to be called elsewhere, such as on another stream: it tells the ledger of this context."""
    ledger = _ledger.get()
    if ledger is None:
        return function

    def call(*args: Any, **kwargs: Any) -> T:
        with recorded(ledger):
            return function(*args, **kwargs)

    return call
