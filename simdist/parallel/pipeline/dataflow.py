"""Dataflow: which rank makes each value and which one needs it, and so all messages of a schedule.

rank 0    F0 ------.                   .----> B0      a value made on one rank and needed on another is a message;
                   | activation        | gradient     one made and needed on the same rank, as at the turn of a
rank 1             `----> F0  B0 ------'              V-shape, stays there
"""

from typing import NamedTuple

from simdist.parallel.pipeline.action import Action, Value
from simdist.parallel.pipeline.schedule import Schedule

__all__ = ["Message", "Step", "gives", "needs", "steps"]


class Message(NamedTuple):
    """A value on its way from the rank that makes it to the rank that needs it."""

    value: Value
    src: int
    dst: int


class Step(NamedTuple):
    """A place in a rank's row.

    Attributes:
        action: the action at this place.
        receives: the messages it needs from other ranks.
        sends: the messages to other ranks after it.
    """

    action: Action
    receives: tuple[Message, ...]
    sends: tuple[Message, ...]


def needs(schedule: Schedule, rank: int, action: Action) -> list[Value]:
    """The values an action of this rank needs."""
    stages = schedule.placement[rank]
    return [value for part in action.parts if (value := part.needs(stages[part.chunk])) is not None]


def gives(schedule: Schedule, rank: int, action: Action) -> list[Value]:
    """The values an action of this rank produces."""
    stages = schedule.placement[rank]
    return [value for part in action.parts for value in part.gives(stages[part.chunk], schedule.num_stages)]


def steps(schedule: Schedule) -> list[list[Step]]:
    """For each rank its row, each action with the messages before and after it.

    A message appears on both of its ranks. Messages between two ranks may be needed in another order than they are
    made in: identify them by their values.
    """
    made_on: dict[Value, int] = {}
    needed_on: dict[Value, int] = {}
    inputs: list[list[list[Value]]] = []  # by rank and place in its row
    outputs: list[list[list[Value]]] = []
    for rank, row in enumerate(schedule.rows):
        inputs.append([needs(schedule, rank, action) for action in row])
        outputs.append([gives(schedule, rank, action) for action in row])
        needed_on.update((value, rank) for values in inputs[rank] for value in values)
        made_on.update((value, rank) for values in outputs[rank] for value in values)
    rows: list[list[Step]] = []
    for rank, row in enumerate(schedule.rows):
        rows.append([])
        for action, needed, made in zip(row, inputs[rank], outputs[rank], strict=True):
            receives = [Message(value, made_on[value], rank) for value in needed if made_on.get(value, rank) != rank]
            sends = [Message(value, rank, needed_on[value]) for value in made if needed_on.get(value, rank) != rank]
            rows[rank].append(Step(action, tuple(receives), tuple(sends)))
    return rows
