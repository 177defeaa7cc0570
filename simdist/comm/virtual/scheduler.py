"""Scheduler: runs fibers in the order of virtual time.

A fiber is one stream of one rank, with its own clock. One fiber runs at a time, until it has to wait or its clock is
ahead of another that is ready: then the earliest one continues. So fibers interact in the order of virtual time, and
every run of a program gives the same result.
"""

from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf, nan
from operator import attrgetter, itemgetter
from typing import Any, Protocol, TypeAlias

from greenlet import GreenletExit, getcurrent, greenlet

from simdist.arrays import metered
from simdist.errors import ArgumentError

__all__ = ["Fiber", "Scheduler", "Waiting"]

_rank, _number = attrgetter("rank"), itemgetter(0)
_resume = greenlet.switch
_Greenlet: TypeAlias = greenlet


class Waiting(Protocol):
    """What a blocked fiber waits for."""

    @property
    def group(self) -> Any:
        """The group of the ranks that the fiber waits for, if any."""

    def waits_for(self) -> tuple[str, list[int]]:
        """A description of the wait, and the global ranks that could end it."""

    def give_up(self, fiber: "Fiber") -> None:
        """The fiber's wait has failed: from now on nothing ends it, or takes a message for it."""


@dataclass(eq=False, slots=True)
class Fiber:
    """One stream of one rank.

    Attributes:
        rank, stream: the global rank and the stream's name.
        s_per_flop, s_per_byte: its computing time.
        clock_s: its virtual time.
        waiting: what it waits for; None while it is running or ready.
        error: the exception to raise in it when it resumes.
        done: whether it has ended.
        daemon: whether the run may end while it waits for work.
    """

    rank: int
    stream: str
    s_per_flop: float
    s_per_byte: float
    daemon: bool = False
    clock_s: float = 0.0
    waiting: Waiting | None = None
    error: Exception | None = None
    done: bool = False
    greenlet: _Greenlet = field(init=False)

    def label(self) -> str:
        """The rank, and the stream if it is not the main one."""
        return f"rank {self.rank}" + (f" (stream {self.stream})" if self.stream != "main" else "")


class Scheduler:
    """Runs fibers, the earliest first; those due at the same instant in the order of their ranks.

    A fiber continues while no other is due before its clock. In most programs the ranks advance in step: many fibers
    are due at few instants. So the heap holds instants, and each instant has a list of fibers, which is sorted when it
    begins. Fibers that become due at the instant in progress form a new list for the same instant.

    In the order of ranks most messages are sent before they are received, as in a ring: the receiver need not block.

    Attributes:
        running: the fiber that runs now.
        due_s: the instant at which the next of the other fibers is due.
        fibers: all fibers that were spawned.
        failure: the first exception that a fiber did not catch, with the fiber; it ends the run.
        end_s: when the last fiber ended.
        numbers: count what is given to `finally_do`.
    """

    def __init__(self) -> None:
        self.fibers: list[Fiber] = []
        self.running: Fiber
        self.due_s = inf
        self.end_s = 0.0
        self.numbers = count()
        self.failure: tuple[Fiber, BaseException] | None = None
        self._now: list[Fiber] = []  # due at the instant in progress, the next one last
        self._later: dict[float, list[Fiber]] = {}
        self._times = [inf]  # the heap of the instants in _later, and inf as a sentinel
        self._last: list[tuple[int, Callable[[], None]]] = []  # to do when no fiber is due at the instant in progress
        self._hub = Fiber(-1, "hub", 0.0, 0.0)  # where the run was started; it continues when no fiber can
        self._hub.greenlet = getcurrent()
        with metered(self):
            self._context = copy_context()  # every fiber inherits the caller's context variables
        self._ending = False

    def spawn(self, fiber: Fiber, body: Callable[[], None]) -> None:
        """Run `body` on `fiber`, starting at its clock."""

        def run(spawner: greenlet) -> None:
            spawner.switch()
            try:
                body()
            except GreenletExit:
                pass
            except BaseException as error:
                if self.failure is None:
                    self.failure = fiber, error
            fiber.done = True

        fiber.greenlet = greenlet(run, self._hub.greenlet)
        fiber.greenlet.gr_context = self._context.copy()
        self.fibers.append(fiber)
        # Entered and left at once: a greenlet inherits the recursion depth of the one that first enters it, and fibers
        # that enter each other in a chain would exhaust it. The call is the same as in `_switch`: NumPy may walk the C
        # stack back to the caller, which must look the same later.
        _resume(fiber.greenlet, getcurrent())
        self.ready(fiber, fiber.clock_s)

    def ready(self, fiber: Fiber, time_s: float) -> None:
        """Let a blocked fiber continue at this time."""
        fibers = self._later.get(time_s)
        if fibers is None:
            fibers = self._plan(time_s)
        fibers.append(fiber)

    def finally_do(self, number: int, action: Callable[[], None]) -> None:
        """Call action when all that fibers do at this instant is done; of several, in the order of their numbers."""
        self._last.append((number, action))
        self._come_back(self.running.clock_s)

    def withdraw(self, fiber: Fiber, time_s: float) -> None:
        """Undo `ready` for this fiber and time."""
        self._later[time_s].remove(fiber)

    def resume(self, fiber: Fiber, time_s: float) -> None:
        """Let a fiber whose wait is over at this time continue as soon as the running one stops.

        It may run ahead of others, but anything that they could observe still waits for its turn. So its data are used
        while they are in the cache.
        """
        self._now.append(fiber)
        if time_s < self.due_s:
            self.due_s = time_s

    def charge(self, flops: int, bytes: int) -> None:
        """Advance the running fiber's clock by the time of its device: the longer of arithmetic and memory."""
        fiber = self.running
        arithmetic_s = flops * fiber.s_per_flop
        memory_s = bytes * fiber.s_per_byte
        fiber.clock_s += arithmetic_s if arithmetic_s > memory_s else memory_s

    def turn(self) -> None:
        """Return when no other fiber is due before the running one's clock."""
        if self.running.clock_s > self.due_s:
            self.give_way()

    def give_way(self) -> None:
        """Let the fibers that are due before the running fiber's clock go first; there is at least one."""
        me = self.running
        if getcurrent() is not me.greenlet:
            raise self._stranger()
        clock_s = me.clock_s
        fibers = self._later.get(clock_s)
        if fibers is None:
            self.ready(me, clock_s)
        else:
            fibers.append(me)
        now = self._now or self._next()  # from here on the same as `_switch`
        self.running = fiber = now.pop()
        if not now:
            self.due_s = self._times[0]
        _resume(fiber.greenlet)

    def block(self, waiting: Waiting | None) -> None:
        """Block the running fiber until `ready` or `resume` is called for it; None: a stream waits for work.

        Raises:
            Exception: the fiber's `error`.
        """
        me = self.running
        if getcurrent() is not me.greenlet:
            raise self._stranger()
        if self._ending:
            raise GreenletExit
        me.waiting = waiting
        self._switch()
        me.waiting = None
        if me.error is not None:
            error, me.error = me.error, None
            try:
                raise error
            finally:
                del error  # which has this frame in its traceback

    def _stranger(self) -> ArgumentError:
        """The error for a call from outside the running fiber, which would switch between fibers of two runs."""
        used = f"the communicator of {self.running.label()} is used by another run or thread"
        return ArgumentError("a communicator is used after the end of its run" if self.running is self._hub else used)

    def run(self, idle: Callable[[], None]) -> None:
        """Run all fibers until they end or one fails; then unwind those that are left.

        Args:
            idle: called when fibers are left and none can continue; it makes some of them ready, or sets `failure`.
        """
        try:
            while self.failure is None:
                self._switch()  # returns when a fiber has ended, or none can continue
                if self.running is self._hub:
                    if not self.stuck():
                        break
                    idle()
        finally:
            self._end()

    def stuck(self) -> list[Fiber]:
        """The fibers that wait for something and have not ended."""
        return [f for f in self.fibers if not f.done and not (f.daemon and f.waiting is None)]

    def _switch(self) -> None:
        """Switch to the fiber that is due first, which may be the running one; to the hub if none is due."""
        now = self._now or self._next()
        self.running = fiber = now.pop()
        if not now:
            self.due_s = self._times[0]
        _resume(fiber.greenlet)

    def _next(self) -> list[Fiber]:
        """Begin the next instant at which a fiber is due; skip those whose fibers have been withdrawn."""
        while self._later:
            self.due_s = heappop(self._times)
            self._now = now = self._later.pop(self.due_s)
            if now and self._last:
                self._come_back(self.due_s)
            elif self._last:  # the list is empty, and so stays
                last, self._last = sorted(self._last, key=_number), []
                for _, action in last:
                    action()
            if len(now) > 1:
                now.sort(key=_rank)
                now.reverse()
            if now:
                return now
        self._now = [self._hub]
        return self._now

    def _come_back(self, time_s: float) -> None:
        """Have `_next` return to this instant even if no fiber will be due at it."""
        if time_s not in self._later:
            self._plan(time_s)

    def _plan(self, time_s: float) -> list[Fiber]:
        """A new instant, with the list of those due at it, which is empty."""
        fibers: list[Fiber] = []
        self._later[time_s] = fibers
        heappush(self._times, time_s)
        if time_s < self.due_s:
            self.due_s = time_s
        return fibers

    def _end(self) -> None:
        """Unwind the fibers that have not ended: their `finally` blocks run."""
        self._ending = True
        self.due_s = nan  # every comparison with it is false, so that no fiber gives way while it unwinds
        for fiber in self.fibers:
            if not fiber.done:
                self.running = fiber
                fiber.greenlet.throw(GreenletExit)
                fiber.waiting = None
        self.end_s = max((fiber.clock_s for fiber in self.fibers), default=0.0)
        # Their contexts refer to the scheduler. Breaking these cycles frees all memory as soon as the run is over.
        self.running = hub = self._hub
        hub.greenlet, hub.stream, self.due_s = greenlet(), "main", -inf  # so that later calls are refused
        for fibers in (self.fibers, self._now, self._later):
            fibers.clear()
        self._context = Context()
