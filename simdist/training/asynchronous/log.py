"""Log: what rank 0 knows of an asynchronous run, summed by steps, and the lines it prints."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add
from typing import NamedTuple

from simdist.training.asynchronous.role import RankReport
from simdist.training.config import Config
from simdist.training.models import build
from simdist.training.trainer import Line

__all__ = ["Log", "Stretch"]


class Stretch(NamedTuple):
    """A part of a run without a pause.

    Attributes:
        start_s: when it began, on the communicator's clock.
        before_s: how long the earlier stretches took together.
    """

    start_s: float
    before_s: float

    def seconds(self, time_s: float) -> float:
        """How long the run had taken at a time in this stretch."""
        return self.before_s + time_s - self.start_s


class _LineTally(NamedTuple):
    """Sums over the steps between two lines of the log. A checkpoint keeps them in this order.

    Attributes:
        loss, targets: their losses, summed over the bytes that they predicted, and how many bytes these are.
        last_s: how long the run had taken when the last one ended; off the record, when its gradient was ready.
        sent_bytes, steps, communication_s: of the steps whose cost is known.
        untimed: how many of the bytes predicted are of a run with a common step, before it went on without one.
        auxiliary_loss: of the layers themselves, summed as the loss is.
    """

    loss: float = 0.0
    targets: float = 0
    last_s: float = 0.0
    sent_bytes: float = 0
    steps: float = 0
    communication_s: float = 0.0
    untimed: float = 0
    auxiliary_loss: float = 0.0

    def plus(self, other: "_LineTally") -> "_LineTally":
        """With those of other steps."""
        return _LineTally(*map(add, self, other))._replace(last_s=max(self.last_s, other.last_s))


class Log:
    """Makes the lines, each when all workers have reached its step.

    Args:
        windows: of (step, worker): how many windows that worker trains on in that step.
        marks: after which steps there are lines.
        tallies: sums from before the first stretch, by mark; in a run resumed with other marks they count for the
            next ones.
        logged_s: how long the run had taken at the last line.

    Attributes:
        diverged_at: the first step, from 1, in which a worker's loss was not finite; 0 if there was none.
    """

    def __init__(
        self,
        config: Config,
        windows: Callable[[int, int], int],
        num_workers: int,
        marks: Sequence[int],
        tallies: Iterable[tuple[int, Iterable[float]]] = (),
        logged_s: float = 0.0,
    ) -> None:
        self._config = config
        self._windows = windows
        self._num_workers = num_workers
        self._marks = marks
        self._tallies: dict[int, _LineTally] = {}
        self.logged_s = logged_s
        self.diverged_at = 0
        self._targets_per_window = build(config).targets_per_window
        self._norm = math.nan
        for mark, numbers in tallies:
            self._count(mark - 1, _LineTally(*numbers))

    def add(self, stretch: Stretch, workers: Mapping[int, RankReport]) -> None:
        """Add what the workers, by their numbers, did in a stretch."""
        for worker, report in workers.items():
            auxiliary_losses = dict(report.auxiliary_losses)
            for step, time_s, loss in zip(report.clocks, report.times_s, report.losses, strict=True):
                targets = self._windows(step, worker) * self._targets_per_window
                summed = loss * targets if targets else 0.0  # of no bytes the loss is nan
                own = auxiliary_losses.get(step, 0.0)
                self._count(step, _LineTally(summed, targets, stretch.seconds(time_s), auxiliary_loss=own))
                if not math.isfinite(summed):
                    self.diverged_at = min(self.diverged_at or step + 1, step + 1)
            for cost in report.costs:
                end_s = stretch.seconds(cost.end_s)
                self._count(cost.step, _LineTally(0.0, 0, end_s, cost.sent_bytes, 1, cost.communication_s))
        self._norm = next((report.norm for report in workers.values()), math.nan)

    def _count(self, step: int, tally: _LineTally) -> None:
        mark = self._marks[min(bisect_right(self._marks, step), len(self._marks) - 1)]  # the first line after it
        self._tallies[mark] = self._tallies.get(mark, _LineTally()).plus(tally)

    def line(self, mark: int, validation_loss: float) -> Line:
        """The log's next line: the losses of all workers in the steps since the line before, and what these cost.

        Its time is from when the last worker reached the mark before until the last worker reached this one; bytes
        are a worker's mean.
        """
        tally = self._tallies.pop(mark, _LineTally())
        now_s = max(self.logged_s, tally.last_s)
        took_s, self.logged_s = now_s - self.logged_s, now_s
        busy_s = tally.communication_s / self._num_workers
        return Line(
            step=mark,
            train_loss=tally.loss / tally.targets if tally.targets else math.nan,
            validation_loss=validation_loss,
            learning_rate=self._config.rates()(mark - 1),
            gradient_norm=self._norm,
            tokens_per_s=(tally.targets - tally.untimed) / took_s if took_s > 0 else 0.0,
            communication_share=min(1.0, max(0.0, busy_s / took_s)) if took_s > 0 else 0.0,
            sent_bytes=round(tally.sent_bytes / tally.steps) if tally.steps else 0,
            seconds=now_s,
            auxiliary_loss=tally.auxiliary_loss / tally.targets if tally.targets else 0.0,
        )

    def tallies(self) -> list[tuple[int, list[float]]]:
        """The sums over the steps since the last line, by mark."""
        return [(mark, list(tally)) for mark, tally in sorted(self._tallies.items())]
