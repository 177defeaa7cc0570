"""Play: go through the rows of a schedule, each action as soon as its inputs are there.

Messages are sent in one of two ways:

    buffered    a send takes no time on its rank. The message arrives Tcomm later (MPI_Isend), or Tcomm after its
                sender's port is free, and no sooner than the receiver's port allows. With `Times.rendezvous` it leaves
                only when its receiver expects it, and so has a buffer for it
    blocking    a send and its receive wait for each other, then hold both ranks for Tcomm (MPI_Ssend). A rank
                receives the inputs of an action before it, and sends the outputs after it, in order
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from simdist.cluster.network import Path, Port
from simdist.errors import require_known
from simdist.parallel.pipeline.action import Action, Value
from simdist.parallel.pipeline.schedule import Message, Schedule, Step, expected
from simdist.parallel.pipeline.times import Clockwork, Times
from simdist.words import counted, listed

__all__ = ["SENDS", "Course", "End", "play"]

SENDS = ("buffered", "blocking")

End = Callable[[int, Action, float], float]
"""When an action ends, given its rank, the action, and when it begins."""


@dataclass
class Course:
    """When every action ran, and which ranks are stuck.

    Attributes:
        start, end: of every executed action, by rank and place in its row.
        left: when a message with a port had been made and, with `Times.rendezvous`, its receiver had a buffer.
        arrived: when a message arrived, for blocking sends and for messages with a port.
        waiting: for each rank that did not finish its row, the message it waits to receive or send; from the rank to
            itself, if no rank sends it.
    """

    start: list[list[float]]
    end: list[list[float]]
    left: dict[Value, float] = field(default_factory=dict)
    arrived: dict[Value, float] = field(default_factory=dict)
    waiting: dict[int, Message] = field(default_factory=dict)

    def __repr__(self) -> str:
        actions, stuck = counted(sum(map(len, self.end)), "action"), f"; stuck: {listed(self.waiting)}"
        return f"<course of {actions} on {counted(len(self.end), 'rank')}{stuck if self.waiting else ''}>"


def play(schedule: Schedule, times: Times, sends: str = "buffered", end: End | None = None) -> Course:
    """Go through all rows.

    Args:
        sends: "buffered" or "blocking".
        end: with buffered sends, called for each action in the order of its row; by the times, if not given.

    Raises:
        UnknownNameError: there is no such way to send.
        ArgumentError: `times` has another number of stages.
    """
    require_known("way to send", sends, SENDS)
    return _blocking(schedule, times) if sends == "blocking" else _Buffered(schedule, times, end).play()


class _Buffered:
    """A play with buffered sends."""

    def __init__(self, schedule: Schedule, times: Times, end: End | None) -> None:
        self._rows, self._times = schedule.steps, times
        paths, messages = _paths(times), (message for row in self._rows for step in row for message in step.sends)
        self._paths = {value: paths[src, dst] for value, src, dst in messages if (src, dst) in paths}
        self._clockwork = Clockwork(schedule, times)
        self._end = end or self._by_times
        self._course = Course([[] for _ in self._rows], [[] for _ in self._rows])
        self._made: dict[Value, tuple[float, int]] = {}  # when, and on which rank
        self._waiter: dict[Value, int] = {}  # the rank that waits for it
        # When each rank begins its row, then when its action ends; messages take ports in the order of time.
        self._busy = [(start, rank) for rank, start in enumerate(self._clockwork.starts)]
        self._unexpected = set(self._paths) if times.rendezvous else set[Value]()  # whose receiver has no buffer
        self._ready: set[Value] = set()  # those of them that are made

    def play(self) -> Course:
        """Go through all rows."""
        heapify(self._busy)
        while self._busy:
            now, rank = heappop(self._busy)
            done = len(self._course.end[rank])
            for value in self._rows[rank][done - 1].gives if done else ():
                if value in self._unexpected:
                    self._ready.add(value)
                else:
                    self._give(value, rank, now)
            self._expect(rank, done, now)
            self._go_on(rank)
        if self._waiter:
            maker = {value: rank for rank, row in enumerate(self._rows) for step in row for value in step.gives}
            stuck = {rank: Message(value, maker.get(value, rank), rank) for value, rank in self._waiter.items()}
            self._course.waiting = stuck
        return self._course

    def _expect(self, rank: int, place: int, now: float) -> None:
        """A rank that comes to this place has buffers for what it expects: messages that are ready leave."""
        if not self._unexpected:
            return
        for value, src, _ in (message for step in expected(self._rows[rank], place) for message in step.receives):
            self._unexpected.discard(value)
            if value in self._ready:
                self._ready.remove(value)
                self._give(value, src, now)

    def _give(self, value: Value, rank: int, now: float) -> None:
        self._made[value] = now, rank
        if value in self._paths:
            self._course.left[value] = now
            _, self._course.arrived[value] = self._paths[value].carry(1, now)
        if value in self._waiter:
            self._go_on(self._waiter.pop(value))

    def _go_on(self, rank: int) -> None:
        """Begin a rank's next action, if what it needs is on its way."""
        start, end = self._course.start[rank], self._course.end[rank]
        free = end[-1] if end else self._clockwork.starts[rank]
        if len(end) == len(self._rows[rank]):
            return
        step = self._rows[rank][len(end)]
        missing = [value for value in step.needs if value not in self._made]
        if missing:
            self._waiter[missing[0]] = rank
            return
        start.append(max([free, *(self._arrival(value, rank) for value in step.needs)]))
        end.append(self._end(rank, step.action, start[-1]))
        heappush(self._busy, (end[-1], rank))

    def _by_times(self, rank: int, action: Action, start: float) -> float:
        return start + self._clockwork.of(rank, action)

    def _arrival(self, value: Value, rank: int) -> float:
        made_s, maker = self._made[value]
        return made_s if maker == rank else self._course.arrived.get(value, made_s + self._times.hop(maker, rank))


def _paths(times: Times) -> dict[tuple[int, int], Path]:
    """Between ranks with ports: as in a virtual cluster, a message holds both ports in turn."""
    out, into = defaultdict[tuple[int, str], Port](Port), defaultdict[tuple[int, str], Port](Port)
    return {
        (src, dst): Path(out[src, kind], into[dst, kind], times.hop(src, dst) - held, held)
        for (src, dst), (kind, held) in (times.ports or {}).items()
    }


def _blocking(schedule: Schedule, times: Times) -> Course:
    course = Course([[] for _ in schedule.rows], [[] for _ in schedule.rows])
    clockwork = Clockwork(schedule, times)
    clock = list(clockwork.starts)
    messages = [_messages(rank, row, clockwork, clock, course) for rank, row in enumerate(schedule.steps)]
    waiter: dict[Message, int] = {}  # the rank at one end of a message that waits for the other end
    runnable = deque(range(len(messages)))
    while runnable:
        rank = runnable.popleft()
        message = next(messages[rank], None)
        if message is None:
            continue
        if message in waiter:
            other = waiter.pop(message)
            clock[rank] = clock[other] = max(clock[rank], clock[other]) + times.hop(message.src, message.dst)
            course.arrived[message.value] = clock[rank]
            runnable += (rank, other)
        else:
            waiter[message] = rank
    course.waiting = {rank: message for message, rank in waiter.items()}
    return course


def _messages(
    rank: int, row: Sequence[Step], clockwork: Clockwork, clock: list[float], course: Course
) -> Iterator[Message]:
    """Go through a rank's row: yields each message at which it waits for another rank."""
    on_rank: set[Value] = set()  # the values on this rank
    for action, needs, gives, receives, sends in row:
        yield from receives
        on_rank.update(message.value for message in receives)
        for value in needs:
            if value not in on_rank:
                yield Message(value, rank, rank)  # no rank sends it
        course.start[rank].append(clock[rank])
        clock[rank] += clockwork.of(rank, action)
        course.end[rank].append(clock[rank])
        on_rank.update(gives)
        yield from sends
