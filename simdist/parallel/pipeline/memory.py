"""Memory: what a rank keeps of its micro-batches, from forward to the last gradient.

M_B |     F........I
    |     |        |               M_B    after F, for the backward
M_W |     |        `.......W       M_W    what is left of it after I, for W
  0 |_____|                |____
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from simdist.errors import require_least
from simdist.parallel.pipeline.action import Backward, BackwardInput, BackwardWeight, Forward, Part
from simdist.parallel.pipeline.schedule import Schedule

__all__ = ["Level", "Memory", "levels", "peak"]


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a micro-batch on a rank. By default each counts 1 until W, so memory is a number of micro-batches.

    Args:
        backward: M_B of a p-th part of the model, in bytes or any unit.
        weight: M_W, likewise.

    Raises:
        ArgumentError: one is negative or NaN.

    Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.
    """

    backward: float = 1.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        require_least("backward", self.backward, 0)
        require_least("weight", self.weight, 0)


class Level(NamedTuple):
    """What a rank keeps during an action, and after it."""

    during: float
    after: float


def levels(schedule: Schedule, rank: int, memory: Memory) -> Iterator[Level]:
    """The level at each place of a rank's row. It depends on the order of actions, not on their times."""
    kept, share = 0.0, schedule.share
    change: dict[type[Part], float] = {
        Forward: memory.backward * share,
        Backward: -memory.backward * share,
        BackwardInput: (memory.weight - memory.backward) * share,
        BackwardWeight: -memory.weight * share,
    }
    for action in schedule.rows[rank]:
        changes = [change[type(part)] for part in action.parts]
        during = kept + sum(max(0.0, c) for c in changes)  # in a pair, the forward adds before the backward frees
        kept += sum(changes)
        yield Level(during, kept)


def peak(schedule: Schedule, rank: int, memory: Memory) -> float:
    """The most that a rank keeps at once."""
    return max((level.during for level in levels(schedule, rank, memory)), default=0.0)
