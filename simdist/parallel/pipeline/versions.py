"""Versions: the weight versions that a schedule uses, makes and keeps, action by action."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NoReturn

from simdist.errors import ScheduleError
from simdist.parallel.pipeline.action import Backward, BackwardWeight, Forward, Part
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.text import grid

__all__ = ["StageVersions", "versions"]


@dataclass
class StageVersions:
    """The weights of one stage on one rank, through its row.

    Attributes:
        used: micro-batch -> the version of its forward and backward.
        updates: the places in the row after which the stage is updated; after the k-th the newest version is k.
        most: the most versions kept at once, including the newest.
    """

    used: dict[int, int] = field(default_factory=dict)
    updates: list[int] = field(default_factory=list)
    most: int = 1


def versions(schedule: Schedule) -> list[list[StageVersions]]:
    """For each rank and chunk, the versions of its weights that are used, made and kept.

    Raises:
        ScheduleError: a forward comes before its version exists, or a group of micro-batches is complete before the
            previous one.
    """
    entered: dict[int, int] = {}  # micro-batch -> the newest version on stage 0 at its forward
    for rank, stages in enumerate(schedule.placement):
        if 0 in stages and schedule.weights.policy == "vertical sync":
            entered |= _Walk(schedule, rank, stages.index(0), {}).walk().used
    return [
        [_Walk(schedule, rank, chunk, entered).walk() for chunk in range(len(stages))]
        for rank, stages in enumerate(schedule.placement)
    ]


class _Walk:
    """Follows one chunk through the row of its rank."""

    def __init__(self, schedule: Schedule, rank: int, chunk: int, entered: dict[int, int]) -> None:
        self.schedule, self.rank, self.entered = schedule, rank, entered
        self.stage = StageVersions()
        own = [(at, part) for at, action in enumerate(schedule.rows[rank]) for part in action.parts]
        self.parts = [(at, part) for at, part in own if part.chunk == chunk]
        mine = [part.micro_batch for _, part in self.parts if isinstance(part, Forward)]
        self.left = Counter(map(schedule.weights.group_of, mine))  # group -> micro-batches that are not complete
        self.newest = 0
        self.old = 0  # older versions that are still needed
        # version -> micro-batches that still need it. Under stashing, known only once their forwards take it.
        self.users = Counter[int]()
        if schedule.weights.policy != "stashing":
            self.users.update(map(self._assigned, mine))

    def _assigned(self, micro_batch: int) -> int:
        """The version of a micro-batch by the policy."""
        match self.schedule.weights.policy:
            case "stashing":
                return self.newest
            case "vertical sync":
                return self.entered.get(micro_batch, self.newest)
            case "2bw":
                return max(0, self.schedule.weights.group_of(micro_batch) - 1)
        return 0

    def walk(self) -> StageVersions:
        """Go through the row."""
        for at, part in self.parts:
            if isinstance(part, Forward):
                self._forward(at, part)
            elif isinstance(part, (Backward, BackwardWeight)):
                self._complete(at, part)
            self.stage.most = max(self.stage.most, self.old + 1)
        return self.stage

    def _forward(self, at: int, part: Part) -> None:
        version = self.stage.used[part.micro_batch] = self._assigned(part.micro_batch)
        if version > self.newest:
            self._refuse(at, f"needs version {version} of the weights, but only {self.newest} updates are done by then")
        if self.schedule.weights.policy == "stashing":
            self.users[version] += 1

    def _complete(self, at: int, part: Part) -> None:
        """Release a micro-batch's version; after the last of a group, make a new one."""
        version, group = self.stage.used.get(part.micro_batch, 0), self.schedule.weights.group_of(part.micro_batch)
        self.users[version] -= 1
        if version < self.newest and not self.users[version]:
            self.old -= 1
        self.left[group] -= 1
        if not self.left[group]:
            if group != self.newest:
                self._refuse(at, f"completes group {group} of micro-batches, but group {self.newest} is not complete")
            self.stage.updates.append(at)
            if self.users[self.newest]:
                self.old += 1
            self.newest += 1

    def _refuse(self, at: int, why: str) -> NoReturn:
        schedule, rank = self.schedule, self.rank
        label = schedule.label(rank, schedule.rows[rank][at])
        raise ScheduleError(
            f"{schedule.name}, {schedule.weights.policy}: {label} on rank {rank} {why}\n{grid(schedule, [(rank, at)])}"
        )
