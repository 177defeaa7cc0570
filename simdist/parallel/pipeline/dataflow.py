"""Dataflow: which rank makes each value and which one needs it, and so all messages of a schedule.

rank 0    F0 ------.                   .----> B0      a value made on one rank and needed on another is a message;
                   | activation        | gradient     one made and needed on the same rank, as at the turn of a
rank 1             `----> F0  B0 ------'              V-shape, stays there
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from simdist.parallel.pipeline.action import Action, Part, Value

if TYPE_CHECKING:
    from simdist.parallel.pipeline.schedule import Schedule

__all__ = ["Message", "Step", "expected", "steps"]


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


def steps(schedule: Schedule) -> list[list[Step]]:
    """For each rank its row, each action with the messages before and after it: `Schedule.steps`, which finds it once.

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
