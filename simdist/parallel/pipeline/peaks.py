"""Peaks: the most memory that a rank of a pipeline uses, found by a walk along its row.

                 place k         place k+1
    received     |===expected====|======used======|              a buffer, posted one place ahead
    kept                               |==========|======...     what layers keep of a micro-batch
    sent                                          |====|         until its receiver has posted a buffer

A value that is made and needed on the same rank waits there in between.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple, Protocol

from simdist.parallel.pipeline.action import Part, Value
from simdist.parallel.pipeline.footprint import Footprint
from simdist.parallel.pipeline.play import Course
from simdist.parallel.pipeline.schedule import Schedule, expected

__all__ = ["Meanwhile", "Peaks", "peak_bytes", "peaks", "value_bytes"]


class Peaks(NamedTuple):
    """The most bytes on a rank.

    Attributes:
        activations: what layers keep for backward.
        buffers: what passes between layers, and between ranks.
        num_bytes: of both, and of what collectives within layers take, at once.
    """

    activations: float
    buffers: float
    num_bytes: float


class Meanwhile(Protocol):
    """What ranks do on another stream around their actions, each of which is asked about once, in the order of rows."""

    def around(self, rank: int, part: Part) -> tuple[float, float]:
        """The most bytes that it takes while the rank waits, before the action or in it, for what the action needs; and
        the most of the action's micro-batch, as of `Footprint.working`, and of the other stream together.
        """


def peaks(
    schedule: Schedule,
    stages: Sequence[Footprint],
    sizes: Sequence[float] | None = None,
    course: Course | None = None,
    meanwhile: Meanwhile | None = None,
    ranks: Iterable[int] | None = None,
) -> list[Peaks]:
    """The peaks of each rank.

    Args:
        stages: the footprint of one micro-batch on each stage.
        sizes: the size of each micro-batch relative to that; 1 where not given.
        course: with `Times.rendezvous`, if what is sent stays until its receiver has posted a buffer. If not given, it
            is copied and free at once.
        meanwhile: what else takes memory. If not given, nothing.
        ranks: of these; of all if not given.
    """
    left = {} if course is None else course.left
    found = []
    for rank in range(len(schedule.steps)) if ranks is None else ranks:
        row = schedule.steps[rank]
        walk = _Walk(schedule, rank, stages, sizes or [1.0] * schedule.num_micro_batches, meanwhile)
        looks = [0.0] * len(row) if course is None else [0.0, *course.end[rank]][:-1]  # for sends that are complete
        under_way: list[Value] = []
        for place, (step, look) in enumerate(zip(row, looks, strict=True)):
            for ahead in expected(row, place):
                walk.wait_for(message.value for message in ahead.receives)
            walk.let_go(value for value in under_way if left.get(value, -inf) < look)
            under_way = [value for value in under_way if left.get(value, -inf) >= look]
            for part in step.action.parts:
                walk.perform(part)
            under_way += [message.value for message in step.sends]
        found.append(Peaks(walk.activations, walk.buffers, walk.num_bytes))
    return found


def peak_bytes(
    schedule: Schedule, rank: int, stages: Sequence[Footprint], sizes: Sequence[float] | None = None
) -> float:
    """The most bytes of activations that a rank of a schedule keeps at once. Arguments as for `peaks`."""
    return peaks(schedule, stages, sizes, ranks=[rank])[0].activations


def value_bytes(stages: Sequence[Footprint], value: Value) -> float:
    """The size of a value. What the loss and BackwardInput leave on their rank counts as kept."""
    stage = value.like_input_of
    return 0.0 if stage == len(stages) or value.what == "pending" else stages[stage].input_bytes


class _Walk:
    """The memory of a rank, action by action: activations, buffers and num_bytes as of `Peaks`, so far."""

    def __init__(
        self,
        schedule: Schedule,
        rank: int,
        stages: Sequence[Footprint],
        sizes: Sequence[float],
        meanwhile: Meanwhile | None,
    ) -> None:
        self._schedule, self._rank, self._stages, self._sizes = schedule, rank, stages, sizes
        self._meanwhile = meanwhile
        done = {schedule.stage(rank, part) for action in schedule.rows[rank] for part in action.parts}
        self._kept = self.activations = self.num_bytes = sum(sizes) * sum(stages[s].text_bytes for s in done)
        self._waiting = self.buffers = 0.0

    def wait_for(self, values: Iterable[Value]) -> None:
        """Add the buffers of these values."""
        self._waiting += sum(map(self._bytes, values))

    def let_go(self, values: Iterable[Value]) -> None:
        """Free them."""
        self._waiting -= sum(map(self._bytes, values))

    def perform(self, part: Part) -> None:
        """An action uses what it needs, and leaves what it keeps and gives."""
        number, letter = self._schedule.stage(self._rank, part), part.letter
        stage, size = self._stages[number], self._sizes[part.micro_batch]
        need = part.needs(number)
        beside, working = 0.0, size * stage.working[letter]
        if self._meanwhile:
            beside, working = self._meanwhile.around(self._rank, part)
        self.num_bytes = max(self.num_bytes, self._kept + self._waiting + beside)
        self.let_go([need] if need else [])
        others = self._kept - (size * stage.levels[part.follows].after if part.follows else 0.0)
        self.activations = max(self.activations, others + size * stage.levels[letter].during)
        self.buffers = max(self.buffers, self._waiting + size * stage.passing[letter])
        self.num_bytes = max(self.num_bytes, others + self._waiting + working)
        self._kept = others + size * stage.levels[letter].after
        self.wait_for(part.gives(number, self._schedule.num_stages))

    def _bytes(self, value: Value) -> float:
        return self._sizes[value.micro_batch] * value_bytes(self._stages, value)
