"""Pipelining: schedules as text, validated and simulated."""

import reprlib
from collections.abc import Iterator
from typing import Any

from simdist.errors import ScheduleError
from simdist.parallel.pipeline import Memory, Schedule, Times, parse, simulate, validate
from simdist.puzzles.puzzle import judges
from simdist.puzzles.trial import Failed, call
from simdist.puzzles.verdict import Finding, at_most

__all__: list[str] = []

_SHAPES = ((2, 4), (3, 7), (4, 8))


def _schedule(answer: Any, stages: int, micro_batches: int) -> Schedule:
    """An answer's rows, as a validated schedule."""
    what = f"the schedule for {stages} stages and {micro_batches} micro-batches"
    rows = call(answer, stages, micro_batches)
    if not isinstance(rows, (list, tuple)) or len(rows) != stages or not all(isinstance(row, str) for row in rows):
        raise Failed(what, reprlib.repr(rows), f"a list of {stages} strings, one row per rank")
    try:
        schedule = parse("\n".join(row or "-" for row in rows), "yours")
        if schedule.num_micro_batches != micro_batches:
            numbers = f"it numbers its micro-batches up to {schedule.num_micro_batches - 1}"
            raise ScheduleError(f"{numbers}; needs 0 to {micro_batches - 1}")
        validate(schedule)
    except ScheduleError as error:
        raise Failed(what, "it cannot be carried out", "", str(error)) from None
    return schedule


@judges(
    23,
    "a pipeline that frees memory early",
    """
Stage r of a model is on rank r. A rank's row is the order in which it computes the forwards (`F0`, one unit of time
each) and the backwards (`B0`, two units each) of the micro-batches; each starts as soon as its inputs are there. If all
forwards come first, as below, every rank keeps all m micro-batches in memory. Keep at most p - r on rank r, and take no
longer.

```python
def rows(p, m):                          # returns a string for each rank
    forwards = " ".join(f"F{i}" for i in range(m))
    backwards = " ".join(f"B{i}" for i in range(m))
    return [f"{forwards} {backwards}" for r in range(p)]
```
""",
    "The last rank can do B0 as soon as it has done F0. When can the rank before it do its B0?",
    "Rank r begins with p - r - 1 forwards, then alternates one forward and one backward, and ends with the rest.",
)
def _one_f_one_b(answer: Any) -> Iterator[Finding]:
    for p, m in (*_SHAPES, (4, 2)):  # the last with fewer micro-batches than stages
        schedule = _schedule(answer, p, m)
        kept = validate(schedule).in_flight
        why = "which rank waits for a forward that another could have done earlier?"
        worst = max(range(p), key=lambda r: kept[r] - (p - r))
        yield at_most(f"micro-batches of {m} kept on rank {worst} of {p}", kept[worst], p - worst)
        yield at_most(f"time for {p} stages, {m} micro-batches", simulate(schedule).makespan, 3 * (m + p - 1), why=why)


@judges(
    24,
    "split the backward",
    """
A backward has two parts: `I0`, the gradient of the input, for which the previous stage waits, and `W0`, the gradient of
the weights, for which no stage waits. Let F, I and W take one unit of time each. If W always follows its I at once, a
rank is idle for up to 3(p-1) units between its first action and its last. Let it be idle for at most p - 1. No rank may
keep more than p micro-batches, as rank 0 did before. A micro-batch counts as 1 from its F to its I, and then as a half
until its W.

```python
def rows(p, m):                          # returns a string for each rank, such as "F0 F1 I0 W0 I1 W1"
    ...
```
""",
    "Begin with the schedule of the previous puzzle, and write each B as I W. Where do ranks wait, and which W could "
    "they compute meanwhile?",
    "At the end, ranks wait for one I after another from the next stage. Save W for these gaps: how many on rank r?",
    "On rank r, let each W come r micro-batches after its I (ZB-H1).",
)
def _zero_bubble(answer: Any) -> Iterator[Finding]:
    memory = Memory(1.0, 0.5)
    for p, m in _SHAPES:
        schedule = _schedule(answer, p, m)
        run = simulate(schedule, Times())
        name = f"{p} stages, {m} micro-batches"
        kept = validate(schedule, memory).memory
        worst = max(range(p), key=lambda r: kept[r])
        why = "half of a micro-batch is kept until its W: which W can come earlier?"
        yield at_most(f"memory of rank {worst}, {name}", kept[worst], p, why=why)
        why = "which W could run where a rank waits?"
        yield at_most(f"idle time of a rank between its first and last action, {name}", run.own_bubble, p - 1, why=why)
