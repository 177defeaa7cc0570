"""Schedule: which rank does what in which order, for the validator, executor, simulator and plots; and the dataflow:
which rank makes each value and which one needs it, and so all messages.

rank 0    F0 ------.                   .----> B0      a value made on one rank and needed on another is a message;
                   | activation        | gradient     one made and needed on the same rank, as at the turn of a
rank 1             `----> F0  B0 ------'              V-shape, stays there
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from typing import NamedTuple

from simdist.errors import ArgumentError
from simdist.parallel.pipeline.action import Action, Part, Value
from simdist.parallel.pipeline.placement import Placement, linear
from simdist.parallel.pipeline.weights import FLUSH, Weights
from simdist.words import counted

__all__ = ["Message", "Schedule", "Step", "expected", "require_schedule", "steps"]


class Message(NamedTuple):
    """A value on its way from the rank that makes it to the rank that needs it."""

    value: Value
    src: int
    dst: int


class Step(NamedTuple):
    """A place in a rank's row: its action, the values that this needs and gives, and those of them that are messages,
    from other ranks and to them.
    """

    action: Action
    needs: tuple[Value, ...]
    gives: tuple[Value, ...]
    receives: tuple[Message, ...]
    sends: tuple[Message, ...]


@dataclass(frozen=True)
class Schedule:
    """A pipeline's schedule: for each rank its row of actions, done in this order, each as soon as its inputs are
    ready. All messages follow from it: `steps`.

        mine = Schedule("mine", [[Forward(0), Forward(1), Backward(0), Backward(1)],
                                 [Forward(0), Backward(0), Forward(1), Backward(1)]])
        validate(mine)                      # raises, or returns memory, weight versions, messages
        print(mine)                         # F0 F1 B0 B1
                                            # F0 B0 F1 B1

    Whether it can be executed is not checked here; use `validate`.

    Args:
        name: in texts and errors; the formulas of a paper's schedule are found by it.
        rows: for each rank, its actions.
        placement: for each rank, its stages in ascending order; if not given, stage r is on rank r.
        num_micro_batches: if not given, one more than the highest number in the rows.
        weights: when a stage updates its weights, and which version a micro-batch uses.
    """

    name: str
    rows: Sequence[Sequence[Action]]
    placement: Placement = ()
    num_micro_batches: int = 0
    weights: Weights = FLUSH

    def __post_init__(self) -> None:
        if not self.rows:
            raise ArgumentError(f"schedule {self.name} has no rows; needs one a rank")
        if not isinstance(self.weights, Weights):
            raise ArgumentError(f"weights of schedule {self.name} is {self.weights!r}; needs Weights, such as {FLUSH}")
        rows = tuple(self._row(rank, row) for rank, row in enumerate(self.rows))
        placement = tuple(map(tuple, self.placement)) or linear(len(rows))
        if len(placement) != len(rows):
            raise ArgumentError(f"{len(rows)} rows, but a placement on {len(placement)} ranks")
        named = (part.micro_batch for row in rows for action in row for part in action.parts)
        count = self.num_micro_batches or 1 + max(named, default=-1)
        for name, value in (("rows", rows), ("placement", placement), ("num_micro_batches", count)):
            object.__setattr__(self, name, value)

    def _row(self, rank: int, given: object) -> tuple[Action, ...]:
        """The row of this rank as a tuple; raises if it is none."""
        row = tuple(given) if isinstance(given, Iterable) else (None,)
        if not all(isinstance(action, Action) for action in row):
            raise ArgumentError(
                f"row {rank} of schedule {self.name} is {given!r:.80}; needs actions, such as [Forward(0), Backward(0)]"
            )
        return row

    @property
    def num_ranks(self) -> int:
        """Ranks, p: the number of rows."""
        return len(self.rows)

    @cached_property
    def num_stages(self) -> int:
        """Stages of the model, S."""
        return 1 + max((stage for stages in self.placement for stage in stages), default=-1)

    @cached_property
    def is_linear(self) -> bool:
        """Whether each rank r has stage r alone."""
        return self.placement == linear(len(self.rows))

    @cached_property
    def steps(self) -> list[list[Step]]:
        """For each rank its row, each action with its messages."""
        return steps(self)

    @property
    def share(self) -> float:
        """The size of a stage relative to a p-th part of the model: 1 where S = p, 1/2 where S = 2p."""
        return self.num_ranks / self.num_stages

    def stage(self, rank: int, part: Part) -> int:
        """The stage of a part of an action on this rank."""
        return self.placement[rank][part.chunk]

    def label(self, rank: int, action: Action) -> str:
        """An action of this rank as text: F0 or F8&B0, with the stage in front, 2F0, unless the schedule is linear."""
        if self.is_linear:
            return "&".join(map(str, action.parts))
        stages = dict(enumerate(self.placement[rank]))
        return "&".join(f"{stages.get(part.chunk, '?')}{part}" for part in action.parts)

    def __repr__(self) -> str:
        actions = counted(sum(map(len, self.rows)), "action")
        ranks, micro_batches = counted(self.num_ranks, "rank"), counted(self.num_micro_batches, "micro-batch")
        return f"<schedule {self.name} of {ranks} and {micro_batches}: {actions}, which print() shows>"

    def __str__(self) -> str:
        """The rows as text, one per line, in columns."""
        labels = [[self.label(r, action) for action in row] for r, row in enumerate(self.rows)]
        widths = [max(map(len, column)) for column in zip_longest(*labels, fillvalue="")]
        return "\n".join(" ".join(map(str.ljust, row, widths)).rstrip() for row in labels)


def require_schedule(given: object) -> None:
    """Raise ArgumentError for anything but a Schedule, such as the name of one."""
    if not isinstance(given, Schedule):
        raise ArgumentError(
            f"schedule is {given!r:.60}; needs a Schedule, such as schedule('1f1b', stages=4, micro_batches=8)"
        )


def steps(schedule: Schedule) -> list[list[Step]]:
    """For each rank its row, each action with the messages before and after it: `Schedule.steps` finds it once.

    A message appears on both of its ranks. Messages between two ranks may be needed in another order than they are
    made in: identify them by their values.
    """
    flows = [
        [_flow(action.parts, stages, schedule.num_stages) for action in row]
        for row, stages in zip(schedule.rows, schedule.placement, strict=True)
    ]
    needed_on = {value: rank for rank, row in enumerate(flows) for needs, _ in row for value in needs}
    made_on = {value: rank for rank, row in enumerate(flows) for _, gives in row for value in gives}
    rows: list[list[Step]] = []
    for rank, row in enumerate(schedule.rows):
        rows.append([])
        for action, (needs, gives) in zip(row, flows[rank], strict=True):
            receives = [Message(value, made_on[value], rank) for value in needs if made_on.get(value, rank) != rank]
            sends = [Message(value, rank, needed_on[value]) for value in gives if needed_on.get(value, rank) != rank]
            rows[rank].append(Step(action, needs, gives, tuple(receives), tuple(sends)))
    return rows


def expected(row: Sequence[Step], place: int) -> Sequence[Step]:
    """The steps whose receives a rank posts when it comes to this place of its row: one place ahead, so that messages
    can arrive early; at first also those of the place itself.
    """
    return row[place + 1 if place else 0 : place + 2]


def _flow(parts: Sequence[Part], stages: Sequence[int], num_stages: int) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The values that the parts of an action need, and those that they give, on a rank with these stages."""
    needs = (part.needs(stages[part.chunk]) for part in parts)
    gives = (part.gives(stages[part.chunk], num_stages) for part in parts)
    return tuple(value for value in needs if value is not None), tuple(chain.from_iterable(gives))
