"""Scheduler: fibers that take turns in the order of virtual time.

A fiber is one stream of one rank, with a clock of its own. One runs at a time, until it has to wait or is
ahead of another that could go on: then the earliest goes on. So whatever fibers do to each other they do in
the order of time, and a run is the same every time.
"""

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from heapq import heappop, heappush
from typing import Any, Protocol

from greenlet import GreenletExit, getcurrent, greenlet

from simdist.arrays import metered

__all__ = ["Fiber", "Scheduler", "Waiting"]


class Waiting(Protocol):
    """What a fiber waits for."""

    @property
    def group(self) -> Any:
        """The group whose ranks it waits for, if any."""

    def waits_for(self) -> tuple[str, list[int]]:
        """In words, and the global ranks that could end the wait."""


class Fiber:
    """One line of work; it is also the meter of what it computes, which its clock heeds.

    Attributes:
        rank, stream: whose it is.
        clock_s: how far it has come.
        due_s: when it is to go on; None while nothing says when.
        waiting: what it waits for; None while it runs or only awaits its turn.
        error: to be raised in it when it goes on.
        done: whether it has come to its end.
        daemon: whether it may wait for ever, as a stream without work does.
    """

    __slots__ = (
        "_s_per_byte",
        "_s_per_flop",
        "clock_s",
        "daemon",
        "done",
        "due_s",
        "error",
        "greenlet",
        "rank",
        "stream",
        "waiting",
    )

    def __init__(self, rank: int, stream: str, s_per_flop: float, s_per_byte: float, daemon: bool = False) -> None:
        self.rank = rank
        self.stream = stream
        self.daemon = daemon
        self.clock_s = 0.0
        self.due_s: float | None = None
        self.waiting: Waiting | None = None
        self.error: Exception | None = None
        self.done = False
        self.greenlet: greenlet
        self._s_per_flop = s_per_flop
        self._s_per_byte = s_per_byte

    def charge(self, flops: int, bytes: int) -> None:
        """Compute for as long as the device needs: the slower of arithmetic and memory."""
        arithmetic_s, memory_s = flops * self._s_per_flop, bytes * self._s_per_byte
        self.clock_s += arithmetic_s if arithmetic_s > memory_s else memory_s

    def label(self) -> str:
        """The rank, with the stream where it is not the main one."""
        return f"rank {self.rank}" + (f" (stream {self.stream})" if self.stream != "main" else "")


class Scheduler:
    """Runs fibers, the earliest first; those due at the same instant in the order in which they became due.

    Most programs march in step: very many fibers are due at very few instants. So the heap holds instants,
    and each instant a queue of fibers.

    Args:
        idle: called when no fiber can go on though some have not ended; returns whether it freed any.

    Attributes:
        running: the fiber that has the processor.
        times: the heap of instants; times[0] is the earliest at which a fiber may be due.
        fibers: all that were ever spawned.
        failure: the first error that a fiber did not catch.
    """

    def __init__(self, idle: Callable[[], bool]) -> None:
        self.times: list[float] = []
        self.fibers: list[Fiber] = []
        self.running: Fiber
        self.failure: tuple[Fiber, BaseException] | None = None
        self._queues: dict[float, deque[Fiber]] = {}
        self._idle = idle
        self._hub = Fiber(-1, "hub", 0.0, 0.0)  # where the run was started; it goes on when nobody else can
        self._hub.greenlet = getcurrent()
        self._context = copy_context()  # what was set around the run holds in every fiber
        self._ending = False

    def spawn(self, fiber: Fiber, body: Callable[[], None]) -> None:
        """Let `fiber` run `body` from its clock on."""

        def run(spawner: greenlet) -> None:
            spawner.switch()
            try:
                with metered(fiber):
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
        # and fibers that entered each other in a row would use it up.
        fiber.greenlet.switch(getcurrent())
        self.ready(fiber, fiber.clock_s)

    def ready(self, fiber: Fiber, time_s: float) -> None:
        """Let a fiber go on at this time; a call for an earlier time replaces one for a later."""
        if fiber.due_s is not None and fiber.due_s <= time_s:
            return
        fiber.due_s = time_s
        queue = self._queues.get(time_s)
        if queue is None:
            self._queues[time_s] = deque((fiber,))
            heappush(self.times, time_s)
        else:
            queue.append(fiber)

    def turn(self) -> None:
        """Return when no other fiber is due before the running one's clock.

        Every message passes here, so the fiber queues up and takes the next out in one go.
        """
        me, times = self.running, self.times
        clock_s = me.clock_s
        if not times or times[0] >= clock_s:
            return
        me.due_s = clock_s
        queue = self._queues.get(clock_s)
        if queue is None:
            self._queues[clock_s] = deque((me,))
            heappush(times, clock_s)
        else:
            queue.append(me)
        self._switch(me)

    def block(self, waiting: Waiting | None) -> None:
        """Give up the processor until `ready` is called for the running fiber; None waits for work, for ever.

        Raises: whatever the scheduler was given to raise in it.
        """
        if self._ending:
            raise GreenletExit
        me = self.running
        me.waiting = waiting
        self._switch(me)
        me.waiting = None
        if me.error is not None:
            error, me.error = me.error, None
            raise error

    def fail(self, fiber: Fiber, error: BaseException) -> None:
        """End the run: nobody else goes on."""
        self.failure = fiber, error
        self.times.clear()
        self._queues.clear()

    def run(self) -> None:
        """Run all fibers to their ends, or until one fails; no fiber is left."""
        try:
            while self.failure is None:
                fiber = self._next()
                if fiber is not self._hub:
                    self.running = fiber
                    fiber.greenlet.switch()
                elif not self.stuck() or not self._idle():
                    break
        finally:
            self._end()

    def stuck(self) -> list[Fiber]:
        """The fibers that wait for something and have not ended."""
        return [f for f in self.fibers if not f.done and not (f.daemon and f.waiting is None)]

    def _switch(self, me: Fiber) -> None:
        fiber = self._next()
        if fiber is not me:
            self.running = fiber
            fiber.greenlet.switch()

    def _next(self) -> Fiber:
        """The fiber that is due first, taken off its queue; the hub where none is due."""
        times, queues = self.times, self._queues
        while times:
            time_s = times[0]
            queue = queues[time_s]
            fiber = queue.popleft()
            if not queue:
                del queues[heappop(times)]
            if fiber.due_s == time_s:  # else it has been called for an earlier time and went on then
                fiber.due_s = None
                return fiber
        return self._hub

    def _end(self) -> None:
        """Unwind the fibers that have not ended, so that their `finally` blocks run."""
        self._ending = True
        for fiber in self.fibers:
            if not fiber.done:
                fiber.greenlet.throw(GreenletExit)
