"""Ledger: how many bytes are alive at each moment, by category.

Like the meter, it is ambient: code that makes a lasting array reports it with `hold`, and the caller may install a
ledger. An array counts until its last reference is gone.
"""

import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from simdist.arrays.ambient import ambient
from simdist.arrays.kind import owner
from simdist.errors import require_known

__all__ = ["CATEGORIES", "Ledger", "Moment", "hold", "inheriting", "recorded"]

T = TypeVar("T")

CATEGORIES = ("parameters", "gradients", "optimizer state", "activations", "communication", "buffers")
"""What memory is used for. Activations are what backward needs of a batch; buffers pass between layers;
communication is the working space of collectives, and parts of a model that a rank holds only for a while."""

_BUFFERS = CATEGORIES.index("buffers")


class Moment(NamedTuple):
    """What was alive after an array was held or freed.

    Attributes:
        time_s: by the ledger's clock.
        live: bytes, in the order of CATEGORIES.
        at: what was running at the last allocation, such as a layer.
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

    Memory that an operation frees before it returns is not counted, except for the buffers of collectives.
    Threads may share a ledger.

    Args:
        clock: gives seconds, a communicator's for example.
        keep: how many of the latest moments to keep.

    Attributes:
        peak: the first moment of the largest total.
        peaks: the most bytes of each category.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, keep: int = 1 << 16) -> None:
        self._clock = clock
        self._live = [0] * len(CATEGORIES)
        self._at = ""
        self._lock = Lock()
        self._held: dict[int, tuple[weakref.ref[Any], int, int]] = {}  # by id: callback, category, bytes
        # An array may be freed inside any statement, even one of this class: that is noted, and counted later.
        self._freed: deque[tuple[int, float]] = deque()
        self._moments: deque[Moment] = deque(maxlen=keep)
        self.peak = Moment(clock(), tuple(self._live), "")
        self.peaks = dict.fromkeys(CATEGORIES, 0)

    @property
    def now(self) -> Moment:
        """What is alive at present."""
        with self._lock:
            self._subtract_freed()
            return Moment(self._clock(), tuple(self._live), self._at)

    @property
    def moments(self) -> list[Moment]:
        """The record, in the order of time."""
        with self._lock:
            self._subtract_freed()
            return list(self._moments)

    def begin(self) -> None:
        """Discard all moments and peaks so far; arrays that are alive still count."""
        with self._lock:
            self._subtract_freed()
            self._moments.clear()
            self.peak = Moment(self._clock(), tuple(self._live), "")
            self.peaks = dict(zip(CATEGORIES, self._live, strict=True))

    def hold(self, category: str, thing: Any, at: str = "") -> None:
        """Count the memory of every array in nested tuples and lists, until it is freed.

        An array that is already held keeps its category, except that a buffer takes the new one.

        Args:
            category: one of CATEGORIES.
            at: what is running, such as a layer.

        Raises:
            UnknownNameError: there is no such category.
        """
        require_known("category", category, CATEGORIES)
        with self._lock:
            self._subtract_freed()
            self._hold(CATEGORIES.index(category), thing, at)

    def _hold(self, category: int, thing: Any, at: str) -> None:
        if isinstance(thing, tuple | list):
            for part in thing:
                self._hold(category, part, at)
        elif getattr(thing, "ndim", 0) and thing.nbytes:
            whole = owner(thing)
            held = self._held.get(id(whole))
            if held is None:
                end = weakref.ref(whole, self._when_freed(id(whole)))
            else:
                end, old_category, num_bytes = held
                if old_category != _BUFFERS or category == _BUFFERS:
                    return
                self._live[old_category] -= num_bytes
            self._held[id(whole)] = end, category, whole.nbytes
            self._live[category] += whole.nbytes
            self._at = at
            moment = self._mark(self._clock())
            if moment.total > self.peak.total:
                self.peak = moment
            name = CATEGORIES[category]
            self.peaks[name] = max(self.peaks[name], self._live[category])

    def _when_freed(self, key: int) -> Callable[[Any], None]:
        freed, clock = self._freed, self._clock
        return lambda _: freed.append((key, clock()))

    def _subtract_freed(self) -> None:
        """Subtract the arrays that have been freed."""
        while self._freed:
            key, time_s = self._freed.popleft()
            _, category, num_bytes = self._held.pop(key)
            self._live[category] -= num_bytes
            self._mark(time_s)

    def _mark(self, time_s: float) -> Moment:
        if self._moments:  # a second stream's clock may be behind the first's, and after a run there is none
            time_s = max(time_s, self._moments[-1].time_s)
        moment = Moment(time_s, tuple(self._live), self._at)
        self._moments.append(moment)
        return moment


_ledger: ContextVar[Ledger | None] = ContextVar("simdist_ledger", default=None)


def hold(category: str, thing: Any, at: str = "") -> None:
    """Report to the ledger of this context, if there is one, that arrays are held: see `Ledger.hold`."""
    ledger = _ledger.get()
    if ledger is not None:
        ledger.hold(category, thing, at)


def recorded(ledger: Ledger) -> AbstractContextManager[object]:
    """Record in this ledger all that this thread or rank holds inside this block."""
    return ambient(_ledger, ledger)


def inheriting(function: Callable[..., T]) -> Callable[..., T]:
    """The function, to be called in another context, as on another stream: it reports to the ledger of this one."""
    ledger = _ledger.get()
    if ledger is None:
        return function

    def call(*args: Any, **kwargs: Any) -> T:
        with recorded(ledger):
            return function(*args, **kwargs)

    return call
