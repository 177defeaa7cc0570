"""Record: the execution of a schedule, read back from the spans of a run."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from simdist.errors import ArgumentError
from simdist.parallel.pipeline.action import Backward, BackwardInput, BackwardWeight, Forward, Overlapped, Part
from simdist.parallel.pipeline.play import Course
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.simulate import Simulation
from simdist.parallel.pipeline.text import is_action
from simdist.parallel.pipeline.times import Times
from simdist.trace import Span, Trace

__all__ = ["action_spans", "executed", "executions", "measured_times", "recorded"]


def executed(schedule: Schedule, trace: Trace, *, run: int = -1) -> Simulation:
    """One of `executions`, by default the last.

    Raises:
        ArgumentError: the record has fewer runs.
    """
    runs = executions(schedule, trace)
    if not -len(runs) <= run < len(runs):
        raise ArgumentError(f"run {run} of {schedule.name}: the record has it {len(runs)} times on all ranks")
    return runs[run]


def executions(schedule: Schedule, trace: Trace, ranks: Sequence[int] | None = None) -> list[Simulation]:
    """When every action of a schedule began and ended, for each run, in seconds from the first action of the run.

    Like a simulation, each has a makespan, bubbles and utilisation. Its times are the mean times of the actions.

    Args:
        trace: a record of one or more runs. If some ranks have more runs than others, the last ones are used.
        ranks: the global ranks of the schedule's ranks; 0, 1, 2, … if not given.
    """
    names = range(schedule.num_ranks) if ranks is None else ranks
    spans = action_spans(trace)
    runs = list[list[list[Span]]]()  # rank -> run -> place
    for rank, name in enumerate(names):
        labels = [schedule.label(rank, action) for action in schedule.rows[rank]]
        starts = _occurrences(labels, [span.name for span in spans[name]])
        runs.append([spans[name][at : at + len(labels)] for at in starts])
    count = min((len(found) for found, row in zip(runs, schedule.rows, strict=True) if row), default=0)
    courses = [recorded([found[i - count] if found else [] for found in runs]) for i in range(count)]
    return [Simulation(schedule, measured_times(schedule, course), course) for course in courses]


def action_spans(trace: Trace) -> defaultdict[int, list[Span]]:
    """The actions of pipelines by global rank, in the order of execution: of two that begin at once, the first is the
    one that takes no time.
    """
    spans = defaultdict[int, list[Span]](list)
    for span in trace:
        if is_action(span.name):
            spans[span.rank].append(span)
    for found in spans.values():  # a trace has the longer first
        found.sort(key=lambda span: (span.start_s, span.end_s))
    return spans


def recorded(rows: Sequence[Sequence[Span]]) -> Course:
    """When the actions of each row began and ended, from the first of all on."""
    origin_s = min(row[0].start_s for row in rows if row)
    return Course(
        [[span.start_s - origin_s for span in row] for row in rows],
        [[span.end_s - origin_s for span in row] for row in rows],
    )


def _occurrences(row: list[str], names: list[str]) -> list[int]:
    """The places where a row begins among the names of actions, without overlap."""
    found, at = [], 0
    while row and at + len(row) <= len(names):
        if names[at : at + len(row)] == row:
            found.append(at)
            at += len(row)
        else:
            at += 1
    return found


def measured_times(schedule: Schedule, course: Course) -> Times:
    """The mean times of each stage's actions, and of pairs with a whole Backward.

    For a stage without halves TB is the time of its whole Backward and TW is 0, so that their sum is right.
    """
    took: dict[tuple[type[Part], int], list[float]] = defaultdict(list)
    pairs: list[float] = []
    for rank, row in enumerate(schedule.rows):
        for action, start, end in zip(row, course.start[rank], course.end[rank], strict=True):
            if isinstance(action, Part):
                took[type(action), schedule.stage(rank, action)].append(end - start)
            elif isinstance(action, Overlapped) and isinstance(action.backward, Backward):
                pairs.append((end - start) / schedule.share)

    def mean(kind: type[Part], stage: int) -> float:
        return fmean(took[kind, stage]) if (kind, stage) in took else 0.0

    stages = range(schedule.num_stages)
    halved = [(BackwardInput, s) in took for s in stages]
    return Times(
        [mean(Forward, s) for s in stages],
        [mean(BackwardInput if halved[s] else Backward, s) for s in stages],
        [mean(BackwardWeight, s) for s in stages],
        overlapped=fmean(pairs) if pairs else None,
    )
