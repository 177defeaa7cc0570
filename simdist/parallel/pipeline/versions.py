"""Versions: what a schedule's policy of weights comes to, action by action."""

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
        used: micro-batch -> the version that its forward and its backward see.
        updates: the places in the row after which the stage is updated; after the k-th its newest version is k.
        most: how many versions are kept at once, the newest included.
    """

    used: dict[int, int] = field(default_factory=dict)
    updates: list[int] = field(default_factory=list)
    most: int = 1


def versions(schedule: Schedule) -> list[list[StageVersions]]:
    """For each rank and chunk which versions of its weights are used, made and kept.

    Raises:
        ScheduleError: a forward comes before the version that its policy gives it, or a group of micro-batches is
            complete before the one before it.
    """
    entered: dict[int, int] = {}  # micro-batch -> the newest version on stage 0 when it was there
    found: list[list[StageVersions]] = [[] for _ in schedule.rows]
    for rank, stages in enumerate(schedule.placement):
        if 0 in stages and schedule.weights.policy == "vertical sync":
            entered |= _Walk(schedule, rank, stages.index(0), {}).walk().used
    for rank, stages in enumerate(schedule.placement):
        found[rank] = [_Walk(schedule, rank, chunk, entered).walk() for chunk in range(len(stages))]
    return found


class _Walk:
    """One chunk's way through the row of its rank."""

    def __init__(self, schedule: Schedule, rank: int, chunk: int, entered: dict[int, int]) -> None:
        self.schedule, self.rank, self.entered = schedule, rank, entered
        self.stage = StageVersions()
        own = [(at, part) for at, action in enumerate(schedule.rows[rank]) for part in action.parts]
        self.parts = [(at, part) for at, part in own if part.chunk == chunk]
        self.mine = [part.micro_batch for _, part in self.parts if isinstance(part, Forward)]
        self.left = Counter(map(schedule.weights.group_of, self.mine))  # group -> micro-batches without all gradients
        self.newest = 0
        self.old = 0  # versions before the newest that somebody still needs
        # version -> who is still to be done with it. Under stashing that is known only as forwards take it.
        stashing = schedule.weights.policy == "stashing"
        self.users = Counter(self._assigned(i) for i in self.mine) if not stashing else Counter[int]()

    def _assigned(self, micro_batch: int) -> int:
        """The version that the policy gives a micro-batch."""
        match self.schedule.weights.policy:
            case "stashing":
                return self.newest
            case "vertical sync":
                return self.entered.get(micro_batch, self.newest)
            case "2bw":
                return max(0, self.schedule.weights.group_of(micro_batch) - 1)
        return 0

    def walk(self) -> StageVersions:
        """All of it."""
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
        """A micro-batch is done with its version; if it is the last of its group, there is a new one."""
        version, group = self.stage.used.get(part.micro_batch, 0), self.schedule.weights.group_of(part.micro_batch)
        self.users[version] -= 1
        self.old -= version < self.newest and not self.users[version]
        self.left[group] -= 1
        if not self.left[group]:
            if group != self.newest:
                self._refuse(at, f"completes group {group} of micro-batches, but group {self.newest} is not complete")
            self.stage.updates.append(at)
            self.old += self.users[self.newest] > 0
            self.newest += 1

    def _refuse(self, at: int, why: str) -> NoReturn:
        schedule, rank = self.schedule, self.rank
        label = schedule.label(rank, schedule.rows[rank][at])
        raise ScheduleError(
            f"{schedule.name}, {schedule.weights.policy}: {label} on rank {rank} {why}\n{grid(schedule, [(rank, at)])}"
        )
