"""Results of an asynchronous run, which rank 0 puts together at its end."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, isnan
from statistics import fmean
from typing import NamedTuple

from simdist.asynchronous.consensus import CONSENSUS
from simdist.trace import Span, Trace
from simdist.trace.kind import kind
from simdist.trace.match import match
from simdist.training.asynchronous.log import Stretch
from simdist.training.asynchronous.role import RankReport
from simdist.training.config import Config
from simdist.training.models import build

__all__ = ["Results", "TimedLoss", "window"]

_SHOWN_STEPS = 8
_AVERAGES = ("average weights", "outer step")


class TimedLoss(NamedTuple):
    """The loss of one worker at one step, from 1 as in the log, after this many seconds of the run."""

    step: int
    time_s: float
    loss: float


@dataclass(frozen=True)
class Results:
    """The results of a run, since it began or was resumed.

    Args:
        done: how many steps each worker has made, including those before a resumption; the last ranks are workers,
            those before them servers.
        validation_loss: the last; nan if there is none.
        validation_step: after which step that was; 0 if there is none.
        record: of all ranks, from the beginning, as far as it was kept.
        windows: of (step, worker): how many windows that worker trains on in that step.
        ranks: those of the reports.
        ranks_per_node: how many are on a node; 0 if all are on one.
    """

    config: Config
    done: list[int]
    validation_loss: float
    validation_step: int
    reports: list[RankReport]
    record: Trace
    stretches: list[Stretch]
    windows: Callable[[int, int], int]
    ranks: Sequence[int]
    lost: tuple[int, ...] = ()
    ranks_per_node: int = 0

    @property
    def num_workers(self) -> int:
        """How many ranks are workers."""
        return len(self.done)

    @property
    def backups(self) -> int:
        """How many gradients a step can do without; a dead worker's is one of them."""
        return (self.config.backups or 0) - len(self.lost)

    @property
    def workers(self) -> list[RankReport]:
        """The reports of the workers."""
        return self.reports[-self.num_workers :]

    @cached_property
    def timed_losses(self) -> list[TimedLoss]:
        """All losses of all workers."""
        return [
            TimedLoss(step + 1, self._seconds(time_s), loss)
            for report in self.workers
            for step, time_s, loss in zip(report.clocks, report.times_s, report.losses, strict=True)
        ]

    @property
    def seconds(self) -> float:
        """From the start to the end of the last step, or to its gradient if its end is not known, without pauses."""
        before_s = self.stretches[0].before_s
        ends_s = [self._seconds(cost.end_s) for report in self.workers for cost in report.costs]
        return max((*(m.time_s for m in self.timed_losses), *ends_s), default=before_s) - before_s

    def _seconds(self, time_s: float) -> float:
        """How long the run had taken at a time on the clock."""
        return self.stretches[self._stretch(time_s)].seconds(time_s)

    def _stretch(self, time_s: float) -> int:
        """The number of the stretch that a time on the clock is in."""
        return max(0, bisect_right(self.stretches, time_s, key=lambda stretch: stretch.start_s) - 1)

    @property
    def joined(self) -> int:
        """In how many stretches each worker has made a step, if only one that it gave up; summed over workers."""
        times_s = ((*report.times_s, *(cost.end_s for cost in report.costs)) for report in self.workers)
        return sum(len(set(map(self._stretch, times))) for times in times_s)

    @property
    def targets(self) -> int:
        """How many bytes the workers have predicted in the steps that they finished, without those that died."""
        first = len(self.reports) - self.num_workers
        windows = sum(
            self.windows(step, rank - first)
            for rank, report in zip(self.ranks[first:], self.workers, strict=True)
            for step in report.clocks
        )
        return windows * build(self.config).targets_per_window

    @property
    def step_s(self) -> float | None:
        """A worker's mean time from one step to the next, including those it gave up; None for a single step."""
        parts = [report for report in self.workers if len(report.clocks) > 1]
        took_s = [self._seconds(d.times_s[-1]) - self._seconds(d.times_s[0]) for d in parts]
        steps_s = [s / (d.clocks[-1] - d.clocks[0]) for s, d in zip(took_s, parts, strict=True)]
        return fmean(steps_s) if steps_s else None

    @property
    def staleness(self) -> list[int]:
        """The staleness of every update, in the order in which each server applied them."""
        return [found for report in self.reports for found in report.staleness]

    # -- the record -----------------------------------------------------------------------------------

    @cached_property
    def trace(self) -> Trace:
        """The record of the last steps of the worker that ended first, as many as the config says.

        Until then all workers were training.
        """
        return window(self.record, *self._last(self.config.trace_steps)) if self.config.trace_steps else Trace([], 1)

    @property
    def shown(self) -> tuple[float, float]:
        """The start and end of the last few of these steps."""
        return self._last(min(_SHOWN_STEPS, self.config.trace_steps))

    def _last(self, steps: int) -> tuple[float, float]:
        """The start and end of this many last steps, as far as they are on the record."""
        recorded_s = min(max((s.end_s for s in self.record if s.rank == rank), default=0.0) for rank in self.ranks)
        begun = [report.times_s for report in self.workers if report.times_s]
        times_s = min(begun, key=lambda times_s: times_s[-1], default=[])
        known = [t for t in times_s if t <= recorded_s] or times_s[:1] or [recorded_s]
        return (known[-1 - steps] if len(known) > steps else self.stretches[0].start_s), known[-1]

    @cached_property
    def averages(self) -> list[Span]:
        """The all-reduces by which rank 0 averaged weights while it trained."""
        frames = [s for s in self.record if s.rank == 0 and s.name in _AVERAGES]
        starts_s = [s.start_s for s in frames]
        found = []
        for s in self.record:
            i = bisect_right(starts_s, s.start_s) - 1
            if s.rank == 0 and kind(s.name) == "all_reduce" and i >= 0 and s.end_s <= frames[i].end_s:
                found.append(s)
        return found

    @property
    def has_consensus(self) -> bool:
        """Whether there are consensus errors to draw: on the record, finite, and not 0 from the start."""
        found = [float(s.detail) for s in self.record if s.name == CONSENSUS]
        return bool(found) and found[0] > 0 and all(map(isfinite, found))

    def waited_shares(self) -> list[float]:
        """The share of its time that each rank waited for other ranks and their messages, by rank.

        With servers, over the whole run: waiting for answers or requests. Without, over the kept record: when it
        communicated and did not compute.
        """
        if not any(isnan(report.waited_s) for report in self.reports):
            return [report.waited_s / report.elapsed_s if report.elapsed_s else 0.0 for report in self.reports]
        told = window(self.record, *self._last(max(1, self.config.trace_steps)), halves=True).statistics()
        return [rank.communicating_s / rank.elapsed_s if rank.elapsed_s else 0.0 for rank in told]


def window(trace: Trace, start_s: float, end_s: float, halves: bool = False) -> Trace:
    """The part of a record in this time: spans cut at its ends, and messages only if both their ends are in it.

    Args:
        halves: keep either end of a message, too: a rank may wait for what is sent only later.
    """
    spans = trace.spans
    inside = [s.end_s > start_s and s.start_s < end_s for s in spans]
    for i, j in () if halves else match(spans):
        inside[i] = inside[j] = inside[i] and inside[j]
    kept = (s for s, here in zip(spans, inside, strict=True) if here)
    return Trace((s._replace(start_s=max(s.start_s, start_s), end_s=min(s.end_s, end_s)) for s in kept), trace.ranks)
