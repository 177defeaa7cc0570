"""Memory: what a rank keeps of its micro-batches from their forward until their last gradient.

M_B |     F........I
    |     |        |               M_B    after a forward, for the backward
M_W |     |        `.......W       M_W    what of it is left after BackwardInput, for the weights' gradients
  0 |_____|                |____
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from simdist.errors import ArgumentError
from simdist.parallel.pipeline.action import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Part,
)
from simdist.parallel.pipeline.schedule import Schedule

__all__ = ["Level", "Memory", "levels"]


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a micro-batch on a rank: by default counted in micro-batches, each 1 until nothing of it is left.

    Args:
        backward: M_B of the p-th part of the model, whatever the schedule; in bytes, or any unit.
        weight: M_W likewise.

    Raises:
        ArgumentError: one is negative.

    Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.
    """

    backward: float = 1.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (self.backward >= 0 and self.weight >= 0):  # nor is nan
            raise ArgumentError(f"M_B is {self.backward} and M_W is {self.weight}; needs 0 or more")


class Level(NamedTuple):
    """What a rank keeps during an action, and after it."""

    during: float
    after: float


def levels(schedule: Schedule, rank: int, memory: Memory) -> Iterator[Level]:
    """The level at each place of a rank's row. It follows from the order alone: time does not come into it."""
    kept, share = 0.0, schedule.share
    change: dict[type[Part], float] = {
        Forward: memory.backward * share,
        Backward: -memory.backward * share,
        BackwardInput: (memory.weight - memory.backward) * share,
        BackwardWeight: -memory.weight * share,
    }
    for action in schedule.rows[rank]:
        changes = [change[type(part)] for part in action.parts]
        during = kept + sum(max(0.0, c) for c in changes)  # of a pair, the forward's is there before the other's goes
        kept += sum(changes)
        yield Level(during, kept)
