"""Stream: a stream of a virtual rank, with its own clock."""

from collections import deque
from collections.abc import Callable
from typing import Any

from simdist.arrays import inheriting
from simdist.comm.communicator import Communicator
from simdist.comm.stream import Stream, Work, check_call
from simdist.comm.virtual.scheduler import Fiber, Scheduler

__all__ = ["VirtualStream", "VirtualWork"]


class VirtualWork(Work):
    """A call on a stream.

    Attributes:
        error: what the call raised, until the run ends.
        heard: whether a `wait` has raised it.
    """

    def __init__(self, stream: "VirtualStream", call: Callable[[], Any], name: str) -> None:
        self.group: Any = None  # it waits only for its own rank
        self._stream = stream
        self._call = call
        self._name = name
        self._asked_s = stream.scheduler.running.clock_s
        self._waiters: list[Fiber] = []
        self._done = False
        self._end_s = 0.0
        self._result: Any = None
        self.error: Exception | None = None
        self.heard = False

    def perform(self) -> None:
        """Make the call, on the stream's fiber, not before the time of `start`."""
        scheduler, fiber = self._stream.scheduler, self._stream.fiber
        fiber.clock_s = max(fiber.clock_s, self._asked_s)
        try:
            self._result = self._call()
        except Exception as error:
            self.error = error
            self._stream.failed.append(self)
        self._done = True
        self._end_s = fiber.clock_s
        for waiter in self._waiters:
            scheduler.ready(waiter, max(waiter.clock_s, self._end_s))

    def waits_for(self) -> tuple[str, list[int]]:
        """See Waiting."""
        fiber = self._stream.fiber
        return f"waits for {self._name} on its stream {fiber.stream!r}", [fiber.rank]

    def give_up(self, fiber: Fiber) -> None:
        """See Waiting."""
        self._waiters.remove(fiber)

    def wait(self) -> Any:
        """See Work. Blocks the calling fiber."""
        scheduler = self._stream.scheduler
        fiber = scheduler.running
        start_s = fiber.clock_s
        if not self._done:
            self._waiters.append(fiber)
            scheduler.block(self)
        if start_s < self._end_s:
            fiber.clock_s = self._end_s
            comm = self._stream.comm
            comm.recorder.add(fiber.stream, f"wait for {comm.stream_name}", start_s, self._end_s)
        if self.error is not None:
            first = self if self.heard else next(work for work in self._stream.failed if not work.heard)
            first.heard = True
            raise first.error or self.error
        return self._result


class VirtualStream(Stream):
    """A stream that runs its work on its own fiber.

    Attributes:
        comm: the communicator's twin.
        fiber: the fiber of the stream.
        failed: the work that failed.
    """

    def __init__(self, comm: Communicator, scheduler: Scheduler, fiber: Fiber) -> None:
        self.comm = comm
        self.scheduler = scheduler
        self.fiber = fiber
        self.failed: list[VirtualWork] = []
        self._works: deque[VirtualWork] = deque()
        self._spawned = False
        self._idle = True

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> VirtualWork:
        """See Stream. The call begins at the caller's time, if no earlier one is under way."""
        check_call(self.fiber.stream, function, (*args, *kwargs.values()))
        name = getattr(function, "__name__", repr(function))
        call = inheriting(function)
        work = VirtualWork(self, lambda: call(*args, **kwargs), name)
        self._works.append(work)
        if self._idle:
            self._idle = False
            self.fiber.clock_s = max(self.fiber.clock_s, self.scheduler.running.clock_s)
            if self._spawned:
                self.scheduler.ready(self.fiber, self.fiber.clock_s)
            else:
                self._spawned = True
                self.scheduler.spawn(self.fiber, self._serve)
        self.scheduler.give_way()  # the stream comes to this time now, not when the caller waits and holds other arrays
        return work

    def _serve(self) -> None:
        while True:
            while self._works:
                self._works.popleft().perform()
            self._idle = True
            self.scheduler.block(None)
