"""Scheduler: fibers that take turns in the order of virtual time.

A fiber is one stream of one rank, with a clock of its own. One runs at a time, until it has to wait or is
ahead of another that could go on: then the earliest goes on. So whatever fibers do to each other they do in
the order of time, and a run is the same every time.
"""

from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappop, heappush
from math import inf, nan
from operator import attrgetter
from typing import Any, Protocol

from greenlet import GreenletExit, getcurrent, greenlet

from simdist.arrays import metered

__all__ = ["Fiber", "Scheduler", "Waiting"]

_rank = attrgetter("rank")
_resume = greenlet.switch


class Waiting(Protocol):
    """What a fiber waits for."""

    @property
    def group(self) -> Any:
        """The group whose ranks it waits for, if any."""

    def waits_for(self) -> tuple[str, list[int]]:
        """In words, and the global ranks that could end the wait."""


class Fiber:
    """One line of work.

    Attributes:
        rank, stream: whose it is.
        s_per_flop, s_per_byte: how long it computes.
        clock_s: how far it has come.
        waiting: what it waits for; None while it runs or only awaits its turn.
        error: to be raised in it when it goes on.
        done: whether it has come to its end.
        daemon: whether it may wait for ever, as a stream without work does.
    """

    __slots__ = (
        "clock_s",
        "daemon",
        "done",
        "error",
        "greenlet",
        "rank",
        "s_per_byte",
        "s_per_flop",
        "stream",
        "waiting",
    )

    def __init__(self, rank: int, stream: str, s_per_flop: float, s_per_byte: float, daemon: bool = False) -> None:
        self.rank = rank
        self.stream = stream
        self.daemon = daemon
        self.clock_s = 0.0
        self.waiting: Waiting | None = None
        self.error: Exception | None = None
        self.done = False
        self.greenlet: greenlet
        self.s_per_flop = s_per_flop
        self.s_per_byte = s_per_byte

    def label(self) -> str:
        """The rank, with the stream where it is not the main one."""
        return f"rank {self.rank}" + (f" (stream {self.stream})" if self.stream != "main" else "")


class Scheduler:
    """Runs fibers, the earliest first; those due at the same instant in the order of their ranks.

    One that runs goes on while no other is due before its clock. Most programs march in step: very many fibers
    are due at very few instants. So the heap holds instants, and each instant a list of fibers, which is put in
    order when its time has come. Fibers that become due at an instant in progress are a new list, for the same
    instant once more.

    In the order of ranks a message is mostly sent before its receive is posted (in a ring each rank sends to the
    next), and then nobody has to wait for it.

    Attributes:
        running: the fiber that has the processor.
        due_s: the instant at which the next of the others is due.
        fibers: all that were ever spawned.
        failure: the first error that a fiber did not catch.
        end_s: when the last fiber came to its end.
    """

    def __init__(self) -> None:
        self.fibers: list[Fiber] = []
        self.running: Fiber
        self.due_s = inf
        self.end_s = 0.0
        self.failure: tuple[Fiber, BaseException] | None = None
        self._now: list[Fiber] = []  # due at the instant in progress, the next one last
        self._later: dict[float, list[Fiber]] = {}
        self._times = [inf]  # the heap of instants, those of _later and a last one
        self._hub = Fiber(-1, "hub", 0.0, 0.0)  # where the run was started; it goes on when nobody else can
        self._hub.greenlet = getcurrent()
        with metered(self):
            self._context = copy_context()  # what was set around the run holds in every fiber
        self._ending = False

    def spawn(self, fiber: Fiber, body: Callable[[], None]) -> None:
        """Let `fiber` run `body` from its clock on."""

        def run(spawner: greenlet) -> None:
            spawner.switch()
            try:
                body()
            except GreenletExit:
                pass
            except BaseException as error:
                if self.failure is None:
                    self.fail(fiber, error)
            fiber.done = True

        fiber.greenlet = greenlet(run, self._hub.greenlet)
        fiber.greenlet.gr_context = self._context.copy()
        self.fibers.append(fiber)
        # Entered now and left at once: a greenlet inherits the depth of recursion of whoever enters it first,
        # and fibers that entered each other in a row would use it up. In the same words as in `_switch`: NumPy may
        # follow the stack of C back to whoever entered, which must look as it did then.
        _resume(fiber.greenlet, getcurrent())
        self.ready(fiber, fiber.clock_s)

    def ready(self, fiber: Fiber, time_s: float) -> None:
        """Let a fiber that waits go on at this time."""
        fibers = self._later.get(time_s)
        if fibers is not None:
            fibers.append(fiber)
            return
        self._later[time_s] = [fiber]
        heappush(self._times, time_s)
        if time_s < self.due_s:
            self.due_s = time_s

    def withdraw(self, fiber: Fiber, time_s: float) -> None:
        """Let a fiber not go on at the time at which it was to."""
        self._later[time_s].remove(fiber)

    def resume(self, fiber: Fiber, time_s: float) -> None:
        """Let a fiber that has what it waited for until this time go on as soon as the running one stops.

        It is ahead of its time, but whatever others could notice it does in its turn. So it goes on while what
        was done for it is in the cache.
        """
        self._now.append(fiber)
        if time_s < self.due_s:
            self.due_s = time_s

    def charge(self, flops: int, bytes: int) -> None:
        """Let the running fiber compute for as long as its device needs: the slower of arithmetic and memory."""
        fiber = self.running
        arithmetic_s = flops * fiber.s_per_flop
        memory_s = bytes * fiber.s_per_byte
        fiber.clock_s += arithmetic_s if arithmetic_s > memory_s else memory_s

    def turn(self) -> None:
        """Return when no other fiber is due before the running one's clock."""
        if self.running.clock_s > self.due_s:
            self.give_way()

    def give_way(self) -> None:
        """Let all others go first that are due before the running fiber's clock, of whom there are some."""
        me = self.running
        clock_s = me.clock_s
        fibers = self._later.get(clock_s)
        if fibers is None:
            self.ready(me, clock_s)
        else:
            fibers.append(me)
        now = self._now or self._next()  # from here on as `_switch`
        self.running = fiber = now.pop()
        if not now:
            self.due_s = self._times[0]
        _resume(fiber.greenlet)

    def block(self, waiting: Waiting | None) -> None:
        """Give up the processor until `ready` is called for the running fiber; None waits for work, for ever.

        Raises: whatever the scheduler was given to raise in it.
        """
        if self._ending:
            raise GreenletExit
        me = self.running
        me.waiting = waiting
        self._switch()
        me.waiting = None
        if me.error is not None:
            error, me.error = me.error, None
            raise error

    def fail(self, fiber: Fiber, error: BaseException) -> None:
        """End the run: nobody else goes on."""
        self.failure = fiber, error
        self._now.clear()
        self._later.clear()
        self._times = [inf]
        self.due_s = inf

    def run(self, idle: Callable[[], None]) -> None:
        """Run all fibers to their ends, or until one fails; no fiber is left.

        Args:
            idle: called when no fiber can go on though some have not ended; it frees some of them, or fails the run.
        """
        try:
            while self.failure is None:
                self._switch()  # comes back when a fiber has ended, or none can go on
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
        """Give the processor to the fiber that is due first, be it the running one; to the hub where none is due."""
        now = self._now or self._next()
        self.running = fiber = now.pop()
        if not now:
            self.due_s = self._times[0]
        _resume(fiber.greenlet)

    def _next(self) -> list[Fiber]:
        """Begin the next instant at which a fiber is due; there may be none left of those that were."""
        while self._later:
            self.due_s = heappop(self._times)
            self._now = now = self._later.pop(self.due_s)
            if len(now) > 1:
                now.sort(key=_rank)
                now.reverse()
            if now:
                return now
        self._now = [self._hub]
        return self._now

    def _end(self) -> None:
        """Unwind the fibers that have not ended, so that their `finally` blocks run."""
        self._ending = True
        self.due_s = nan  # no comparison with it holds: what fibers do as they unwind lets no other go on
        for fiber in self.fibers:
            if not fiber.done:
                self.running = fiber
                fiber.greenlet.throw(GreenletExit)
        self.end_s = max((fiber.clock_s for fiber in self.fibers), default=0.0)
        # Their contexts know the scheduler. Without these cycles all memory is free as soon as the run is over.
        self.fibers.clear()
        self._context = Context()
