"""Story: what came of an asynchronous run, as rank 0 puts it together when all have ended."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

from simdist.asynchronous.consensus import CONSENSUS
from simdist.trace import Span, Trace
from simdist.trace.kind import kind
from simdist.trace.match import match
from simdist.training.asynchronous.ranks import Doing
from simdist.training.config import Config
from simdist.training.models import build
from simdist.training.trainer import Line

__all__ = ["Costs", "Moment", "Story", "window"]

_SHOWN_STEPS = 8
_AVERAGES = ("average weights", "outer step")


class Costs(NamedTuple):
    """What one rank's steps cost, as far as they are on the record; see `Pace`."""

    sent_bytes: list[int]
    communication_s: list[float]
    messages: int
    flops: int
    norm: float


class Moment(NamedTuple):
    """The loss of one worker at one step, so many seconds after the start."""

    step: int
    time_s: float
    loss: float


@dataclass(frozen=True)
class Story:
    """What came of a run.

    Args:
        config: what it was told.
        num_workers: the last ranks; those before are servers.
        marks: the steps of the log.
        validation_losses: after each of them.
        parts: of each rank.
        record: of all ranks, from the beginning as far as it was kept.
        start_s: when it began.
    """

    config: Config
    num_workers: int
    marks: list[int]
    validation_losses: list[float]
    parts: list[tuple[Doing, Costs]]
    record: Trace
    start_s: float

    @property
    def workers(self) -> list[tuple[Doing, Costs]]:
        """The parts of those that work."""
        return self.parts[-self.num_workers :]

    @cached_property
    def moments(self) -> list[Moment]:
        """All losses of all workers."""
        return [
            Moment(step, time_s - self.start_s, loss)
            for doing, _ in self.workers
            for step, time_s, loss in zip(doing.clocks, doing.times_s, doing.losses, strict=True)
        ]

    @property
    def seconds(self) -> float:
        """From the start to the last gradient of all."""
        return max((m.time_s for m in self.moments), default=0.0)

    @property
    def targets(self) -> float:
        """How many bytes all have predicted in the steps that they finished."""
        return len(self.moments) * self._targets_a_step / self.num_workers

    @cached_property
    def _targets_a_step(self) -> int:
        return self.config.global_batch_size * build(self.config).targets_per_window

    @property
    def step_s(self) -> float:
        """A worker's mean time from one step to the next, those that it gave up among them."""
        parts = [doing for doing, _ in self.workers if len(doing.clocks) > 1]
        steps_s = [(d.times_s[-1] - d.times_s[0]) / (d.clocks[-1] - d.clocks[0]) for d in parts]
        return fmean(steps_s) if steps_s else 0.0

    @property
    def staleness(self) -> list[int]:
        """Of every update, in the order in which each server applied them."""
        return [found for doing, _ in self.parts for found in doing.staleness]

    # -- lines ----------------------------------------------------------------------------------------

    def lines(self) -> list[Line]:
        """The log: the losses of all workers in the steps since the line before, and what these cost.

        Their times are from when the last worker had come to one mark until the last had come to the next; bytes are
        a worker's mean.
        """
        found, before, before_s = [], 0, 0.0
        for mark, loss in zip(self.marks, self.validation_losses, strict=True):
            here = [m for m in self.moments if before <= m.step < mark]
            now_s = max([before_s, *(m.time_s for m in here)])
            targets = len(here) * self._targets_a_step / self.num_workers
            sent, busy_s = self._costs_between(before, mark)
            took_s = now_s - before_s
            found.append(
                Line(
                    step=mark,
                    train_loss=fmean(m.loss for m in here) if here else float("nan"),
                    validation_loss=loss,
                    learning_rate=self.config.rates()(mark - 1),
                    gradient_norm=self.workers[0][1].norm,
                    tokens_per_s=targets / took_s if took_s > 0 else 0.0,
                    communication_share=min(1.0, busy_s / took_s) if took_s > 0 else 0.0,
                    sent_bytes=round(sent),
                    seconds=now_s,
                )
            )
            before, before_s = mark, now_s
        return found

    def _costs_between(self, first: int, end: int) -> tuple[float, float]:
        """A worker's mean bytes a step, and the mean seconds that workers communicated, in these steps."""
        sent = [b for _, costs in self.workers for b in costs.sent_bytes[first:end]]
        busy_s = [sum(costs.communication_s[first:end]) for _, costs in self.workers]
        return (fmean(sent) if sent else 0.0), fmean(busy_s)

    # -- the record -----------------------------------------------------------------------------------

    @cached_property
    def trace(self) -> Trace:
        """The record of as many steps as the config says, the last ones of the worker that was first to end.

        Until then all were at work.
        """
        return window(self.record, *self._last(self.config.trace_steps)) if self.config.trace_steps else Trace([], 1)

    @property
    def shown(self) -> tuple[float, float]:
        """From when to when the last few of these steps took."""
        return self._last(min(_SHOWN_STEPS, self.config.trace_steps))

    def _last(self, steps: int) -> tuple[float, float]:
        """From when to when these steps took, as far as they are on the record."""
        recorded_s = min(
            max((s.end_s for s in self.record if s.rank == r), default=0.0) for r in range(len(self.parts))
        )
        times_s = min((doing.times_s for doing, _ in self.workers if doing.times_s), key=lambda times_s: times_s[-1])
        known = [t for t in times_s if t <= recorded_s] or times_s[:1]
        return (known[-1 - steps] if len(known) > steps else self.start_s), known[-1]

    @property
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
        """Whether there are consensus errors to draw: on the record, and not 0 from the start."""
        found = [float(s.detail) for s in self.record if s.name == CONSENSUS]
        return bool(found) and found[0] > 0

    def waited_shares(self) -> list[float]:
        """Which share of its time each rank waited for others, by rank, and for what they sent to arrive.

        With servers, of the whole run: for answers, for requests. Without, of the kept record: when it communicated and
        did not compute.
        """
        known = [doing.waited_share for doing, _ in self.parts]
        shares = [share for share in known if share is not None]
        if len(shares) == len(known):
            return shares
        told = window(self.record, *self._last(max(1, self.config.trace_steps))).statistics()
        return [rank.communicating_s / rank.elapsed_s if rank.elapsed_s else 0.0 for rank in told]


def window(trace: Trace, start_s: float, end_s: float) -> Trace:
    """What a record has of this time: spans cut at its ends, and messages with both their ends or not at all."""
    spans = trace.spans
    inside = [s.end_s > start_s and s.start_s < end_s for s in spans]
    for i, j in match(spans):
        inside[i] = inside[j] = inside[i] and inside[j]
    kept = (s for s, here in zip(spans, inside, strict=True) if here)
    return Trace((s._replace(start_s=max(s.start_s, start_s), end_s=min(s.end_s, end_s)) for s in kept), trace.ranks)
