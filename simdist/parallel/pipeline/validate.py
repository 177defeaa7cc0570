"""Validate: whether a schedule can be executed, and what it costs, before anything runs."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

from simdist.errors import ScheduleError
from simdist.parallel.pipeline.action import Part
from simdist.parallel.pipeline.memory import Memory, peak
from simdist.parallel.pipeline.play import Course, play
from simdist.parallel.pipeline.schedule import Schedule, require_schedule
from simdist.parallel.pipeline.text import LETTERS, grid
from simdist.parallel.pipeline.times import Times
from simdist.parallel.pipeline.versions import versions
from simdist.words import counted

__all__ = ["ScheduleCosts", "refuse_deadlock", "validate"]


@dataclass(frozen=True, slots=True)
class ScheduleCosts:
    """The costs of a valid schedule.

    Attributes:
        in_flight: for each rank, the most micro-batches it keeps at once; one kept on one of v chunks counts 1/v.
        memory: likewise, in the unit of the given M_B and M_W.
        weight_versions: for each rank and chunk, the most versions of its weights kept at once.
        messages: for each rank, how many it sends.
        blocking: whether it also runs without deadlock if sends wait for their receives.
    """

    in_flight: tuple[float, ...]
    memory: tuple[float, ...]
    weight_versions: tuple[tuple[int, ...], ...]
    messages: tuple[int, ...]
    blocking: bool


def validate(schedule: Schedule, memory: Memory | None = None, *, sends: str = "buffered") -> ScheduleCosts:
    """Check that a schedule can be executed: every micro-batch goes forward and backward once through every stage, on
    one rank and in order; weight versions exist when they are needed; and there is no deadlock.

    Args:
        memory: of a micro-batch, for ScheduleCosts.memory.
        sends: the kind of sends it must work with: "buffered", or "blocking", where a send waits for its receive.

    Raises:
        ScheduleError: it cannot be executed; the message says why, and shows the rows with the place marked.
        UnknownNameError: there is no such kind of sends.
        ArgumentError: this is no Schedule.
    """
    require_schedule(schedule)
    where = _inventory(schedule)
    _complete(schedule, where)
    _in_order(schedule, where)
    courses = {way: play(schedule, Times(), way) for way in {"buffered", "blocking", sends}}
    if courses[sends].waiting:
        refuse_deadlock(schedule, courses[sends], sends)
    ranks, each_is_one = range(schedule.num_ranks), Memory()
    in_flight = tuple(peak(schedule, rank, each_is_one) for rank in ranks)
    return ScheduleCosts(
        in_flight=in_flight,
        memory=in_flight if memory in (None, each_is_one) else tuple(peak(schedule, rank, memory) for rank in ranks),
        weight_versions=tuple(tuple(stage.most for stage in chunks) for chunks in versions(schedule)),
        messages=tuple(sum(len(step.sends) for step in row) for row in schedule.steps),
        blocking=not courses["blocking"].waiting,
    )


Where = dict[tuple[str, int, int], tuple[int, int]]
"""(letter, stage, micro-batch) -> (rank, place in its row)."""


def _refuse(schedule: Schedule, why: str, marks: Collection[tuple[int, int]]) -> NoReturn:
    raise ScheduleError(f"{schedule.name}: {why}\n{grid(schedule, marks)}")


def _inventory(schedule: Schedule) -> Where:
    """The place of each action; each occurs once, and its micro-batch and stage exist."""
    where: Where = {}
    for rank, row in enumerate(schedule.rows):
        for at, action in enumerate(row):
            for part in action.parts:
                key = _key(schedule, rank, at, part)
                if key in where:
                    first_rank, _ = where[key]
                    if first_rank == rank:
                        _refuse(schedule, f"rank {rank} does {part} of stage {key[1]} twice", [(rank, at)])
                    why = f"{part} of stage {key[1]} has two owners, rank {first_rank} and rank {rank}"
                    _refuse(schedule, why, [where[key], (rank, at)])
                where[key] = rank, at
    return where


def _key(schedule: Schedule, rank: int, at: int, part: Part) -> tuple[str, int, int]:
    stages, m = schedule.placement[rank], schedule.num_micro_batches
    if not 0 <= part.chunk < len(stages):
        has = counted(len(stages), "chunk")
        _refuse(schedule, f"{part} on rank {rank} is of chunk {part.chunk}; the rank has {has}, from 0", [(rank, at)])
    if not 0 <= part.micro_batch < m:
        _refuse(schedule, f"{part} on rank {rank}: there are {m} micro-batches, from 0", [(rank, at)])
    return part.letter, stages[part.chunk], part.micro_batch


def _complete(schedule: Schedule, where: Where) -> None:
    """Every micro-batch has a forward and a backward, whole or in halves, on every stage."""
    for stage in range(schedule.num_stages):
        holders = [rank for rank, stages in enumerate(schedule.placement) if stage in stages]
        if not holders:
            raise ScheduleError(f"{schedule.name}: no rank has stage {stage} of {schedule.num_stages}\n{schedule}")
        for i in range(schedule.num_micro_batches):
            there = [letter for letter in "FBIW" if (letter, stage, i) in where]
            if there in (["F", "B"], ["F", "I", "W"]):
                continue
            places = [where[letter, stage, i] for letter in there]
            marks = places or [(rank, len(schedule.rows[rank])) for rank in holders]
            wanted = f"F{i} and B{i}, or F{i}, I{i} and W{i}"
            has = ", ".join(f"{letter}{i}" for letter in there) or "none of these"
            _refuse(schedule, f"micro-batch {i} needs {wanted} on stage {stage}; there is {has}", marks)


def _in_order(schedule: Schedule, where: Where) -> None:
    """A stage's actions on a micro-batch are on one rank, forward before backward, input before weights."""
    for (letter, stage, i), (rank, at) in where.items():
        if not (before := LETTERS[letter].follows):
            continue
        first_rank, first_at = where[before, stage, i]
        if first_rank != rank:
            why = f"micro-batch {i} has two owners on stage {stage}: rank {first_rank} does {before}{i}, "
            _refuse(schedule, f"{why}rank {rank} {letter}{i}", [(first_rank, first_at), (rank, at)])
        if first_at >= at:
            why = f"rank {rank} does {letter}{i} of stage {stage} before {before}{i}, which it needs"
            _refuse(schedule, why, [(rank, at)])


def refuse_deadlock(schedule: Schedule, course: Course, sends: str) -> NoReturn:
    """Raise the error for a course that ends in a deadlock, with the cycle of ranks that wait for each other."""
    rank = min(course.waiting)
    seen: list[int] = []
    while rank not in seen:
        seen.append(rank)
        message = course.waiting[rank]
        rank = message.dst if rank == message.src else message.src
        if rank not in course.waiting:  # it has finished its row
            break
    cycle = seen[seen.index(rank) :] if rank in seen else seen
    told = "; ".join(_told(schedule, course, rank) for rank in cycle)
    _refuse(schedule, f"deadlock with {sends} sends: {told}", [(rank, _stuck(course, rank)) for rank in cycle])


def _stuck(course: Course, rank: int) -> int:
    """The place of the action that a rank cannot begin, or whose messages it cannot send."""
    _, src, dst = course.waiting[rank]
    return len(course.end[rank]) - (src == rank != dst)


def _told(schedule: Schedule, course: Course, rank: int) -> str:
    """What a rank waits for, as text."""
    value, src, dst = course.waiting[rank]
    at = schedule.label(rank, schedule.rows[rank][_stuck(course, rank)])
    what = f"the {value.what} of micro-batch {value.micro_batch} for stage {value.stage}"
    if src == rank != dst:
        return f"rank {rank} after {at} waits for rank {dst} to take {what}"
    return f"rank {rank} before {at} waits for {what} from {f'rank {src}' if src != rank else 'itself'}"
