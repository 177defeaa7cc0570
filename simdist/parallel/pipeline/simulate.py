"""Simulate: the timing of a schedule."""

from collections.abc import Iterator
from dataclasses import dataclass

from simdist.errors import require_kind
from simdist.parallel.pipeline.memory import Memory, levels
from simdist.parallel.pipeline.play import Course, End, play
from simdist.parallel.pipeline.schedule import Schedule, require_schedule
from simdist.parallel.pipeline.times import Times
from simdist.parallel.pipeline.validate import refuse_deadlock
from simdist.trace import Span, Trace

__all__ = ["Simulation", "simulate"]


def simulate(
    schedule: Schedule, times: Times | None = None, *, sends: str = "buffered", end: End | None = None
) -> "Simulation":
    """When every action of a schedule begins and ends: in the order of its row, as soon as its inputs are there.

    Args:
        schedule: a valid schedule; only deadlock is detected here.
        times: of the actions; where not given TF = TB = TW = 1, and messages take no time.
        sends: "buffered", which take no time on their rank, or "blocking", which wait for their receives.
        end: as of `play`.

    Raises:
        ScheduleError: the ranks deadlock.
        ArgumentError: `times` has another number of stages, or this is no Schedule.
    """
    require_schedule(schedule)
    times = times or Times()
    require_kind("times", times, Times, "Times(1, 1, 1)")
    course = play(schedule, times, sends, end)
    if course.waiting:
        refuse_deadlock(schedule, course, sends)
    return Simulation(schedule, times, course)


@dataclass(frozen=True, slots=True)
class Simulation:
    """The timing of a schedule, in the unit of the given times.

    Attributes:
        schedule, times: what was simulated.
        course: when every action began and ended, by rank and place in its row.
    """

    schedule: Schedule
    times: Times
    course: Course

    def __repr__(self) -> str:
        return f"<simulation: makespan {self.makespan:g}, bubble {self.bubble:g}; {self.schedule!r}>"

    @property
    def makespan(self) -> float:
        """From the start to the end of the last action."""
        return max((end[-1] for end in self.course.end if end), default=0.0)

    def busy(self, rank: int) -> float:
        """How long a rank is busy."""
        return sum(end - start for start, end in zip(self.course.start[rank], self.course.end[rank], strict=True))

    def span(self, rank: int) -> float:
        """From a rank's first action to its last."""
        start, end = self.course.start[rank], self.course.end[rank]
        return end[-1] - start[0] if end else 0.0

    @property
    def longest_span(self) -> float:
        """The longest span of any rank: the cost of a schedule in the zero-bubble papers."""
        return max(map(self.span, self._ranks))

    def utilisation(self, rank: int) -> float:
        """The share of the makespan that a rank is busy."""
        return self.busy(rank) / self.makespan if self.makespan else 1.0

    @property
    def bubble(self) -> float:
        """How long a rank is idle within the makespan, on average: the bubble of GPipe's and DualPipe's papers."""
        return self.makespan - sum(map(self.busy, self._ranks)) / self.schedule.num_ranks

    @property
    def bubble_rate(self) -> float:
        """The bubble as a share of the makespan."""
        return self.bubble / self.makespan if self.makespan else 0.0

    @property
    def own_bubble(self) -> float:
        """How long the rank with the longest span is idle within its span: the bubble of the zero-bubble papers. It
        leaves out the wait for the first micro-batch, when the rank may still be busy with the previous step.
        """
        rank = max(self._ranks, key=self.span)
        return self.span(rank) - self.busy(rank)

    @property
    def own_bubble_rate(self) -> float:
        """That as a share of the longest span: (cost - m (TF + TB + TW)) / cost."""
        return self.own_bubble / self.longest_span if self.longest_span else 0.0

    def memory(self, rank: int, memory: Memory | None = None) -> list[tuple[float, float]]:
        """What a rank keeps over time: pairs of a time and the level from then on, starting at 0."""
        curve = [(0.0, 0.0)]
        found = levels(self.schedule, rank, memory or Memory())
        for start, end, level in zip(self.course.start[rank], self.course.end[rank], found, strict=True):
            curve += [(start, level.during), (end, level.after)]
        return curve

    @property
    def _ranks(self) -> range:
        return range(self.schedule.num_ranks)

    # -- the record -----------------------------------------------------------------------------------

    def trace(self) -> Trace:
        """A trace of the simulation, like that of a run; a unit of time becomes a second."""
        return Trace([*self._actions(), *self._messages()], self.schedule.num_ranks)

    def _actions(self) -> Iterator[Span]:
        for rank, row in enumerate(self.schedule.rows):
            for action, start, end in zip(row, self.course.start[rank], self.course.end[rank], strict=True):
                micro_batch = action.parts[0].micro_batch
                yield Span(rank, "main", self.schedule.label(rank, action), start, end, micro_batch=micro_batch)

    def _messages(self) -> Iterator[Span]:
        """A send lasts from the end of its action until it arrives; a receive from the end of the previous action."""
        rows = self.schedule.steps
        arrives: dict[object, float] = {}
        tags: dict[object, int] = {}
        for rank, row in enumerate(rows):
            for step, end in zip(row, self.course.end[rank], strict=True):
                for value, src, dst in step.sends:
                    arrives[value] = self.course.arrived.get(value, end + self.times.hop(src, dst))
                    tags[value] = len(tags)
                    yield Span(rank, "main", "send", end, arrives[value], 0, dst, tags[value], "", value.micro_batch)
        for rank, row in enumerate(rows):
            for step, free in zip(row, [0.0, *self.course.end[rank]], strict=False):
                for value, src, _ in step.receives:
                    end = max(free, arrives[value])
                    yield Span(rank, "main", "recv", free, end, 0, src, tags[value], "", value.micro_batch)
