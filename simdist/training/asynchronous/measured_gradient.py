"""Measured gradient: one worker's gradient, and what its steps cost, without messages to other ranks."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, Meter, metered
from simdist.asynchronous import Gradient, Snapshots
from simdist.comm import Communicator
from simdist.nn import auxiliary
from simdist.parallel.gradient_norm import clip_gradient
from simdist.trace import Span
from simdist.trace.kind import COMMUNICATING, COMPUTING, kind
from simdist.training.profiler import covered_s

__all__ = ["MeasuredGradient", "StepCost"]

_MOST_ROWS = 1 << 16
"""How many rows of the record one run's steps may fill."""


class StepCost(NamedTuple):
    """What one step of one rank cost, on all its streams, and when it ended, on the communicator's clock."""

    step: int
    sent_bytes: int
    messages: int
    communication_s: float
    end_s: float = 0.0


@dataclass(eq=False, repr=False)
class MeasuredGradient:
    """Wraps a function that finds a worker's gradients, and notes its steps as they begin.

        measured = MeasuredGradient(comm, gradient, …)
        measured.begin()                        # of each stretch of the run
        train(comm, weights, measured, …)       # calls measured(weights, step)
        measured.end(weights, step)

    A rank that asked the others how far they are would change who waits for whom. So each keeps its notes until
    the end of a stretch; the record is kept from the beginning, as far as there is room for it.

    Args:
        comm: whose clock and record to read.
        gradient: what finds the gradients, of this rank's data.
        marks: the steps at whose beginning a copy of the weights is kept, in ascending order; empty if this
            rank keeps none.
        max_norm: each worker clips its gradient to this norm; 0 for no clipping.
        tell: called with the step and the loss before it, at each mark.

    Attributes:
        snapshots: the copies.
        meter: counts what the gradients cost.
        norm: of the last gradient, before clipping; nan without clipping.
    """

    comm: Communicator
    gradient: Gradient
    marks: InitVar[Iterable[int]]
    max_norm: float = 0.0
    tell: Callable[[int, float], None] | None = None

    def __post_init__(self, marks: Iterable[int]) -> None:
        self.snapshots = Snapshots(self.comm)
        self._costs: list[StepCost] = []
        self._auxiliary_losses: list[tuple[int, float]] = []
        self.meter = Meter()
        self.norm = np.nan
        self._marks = deque(marks)
        self._loss = np.nan
        self._rows = self.comm.recorder.rows
        self._first = len(self._rows)
        self.begin()
        self._step: int | None = None  # that is under way

    def begin(self) -> None:
        """A stretch begins, or a step."""
        self._begin, self._begin_s = len(self._rows), self.comm.clock()

    def __call__(self, weights: Array, step: int) -> tuple[float, Array]:
        """The loss and its gradient."""
        self.close()
        self._step = step
        if self._keep(weights, step) and self.tell:
            self.tell(step, self._loss)
        with metered(self.meter), auxiliary.collected() as losses:
            self._loss, g = self.gradient(weights, step)
        if losses.total:
            self._auxiliary_losses.append((step, losses.total))
        if self.max_norm:
            self.norm = clip_gradient(g, self.max_norm)
        return self._loss, g

    def end(self, weights: Array, step: int) -> None:
        """A stretch ends before this step, with these weights."""
        self.close()
        self._keep(weights, step)

    def take_costs(self) -> dict[str, Any]:
        """What a `RankReport` has of the steps since the last call, by its fields: their costs, if on the record, and
        operations, the last norm, and the layers' own losses by step, without those that are 0.
        """
        costs, flops, losses = self._costs, self.meter.flops, self._auxiliary_losses
        self._costs, self.meter, self._auxiliary_losses = [], Meter(), []
        return {"costs": costs, "flops": flops, "norm": self.norm, "auxiliary_losses": losses}

    def skip(self, marks: Iterable[int]) -> None:
        """Drop all marks but these."""
        left = set(marks)
        self._marks = deque(mark for mark in self._marks if mark in left)

    def _keep(self, weights: Array, step: int) -> bool:
        """Take copies for the marks that this step has reached; returns whether there are any."""
        found = bool(self._marks) and step >= self._marks[0]
        while self._marks and step >= self._marks[0]:
            self._marks.popleft()
            self.snapshots.take(step, weights)
        return found

    def close(self) -> None:
        """The step under way is over: add up its cost, and end the record if it is too long.

        The first step of a stretch begins with the stretch. A step ends before a last wait for another stream.
        """
        step, self._step = self._step, None
        if step is None or not self.comm.recorder.on:
            return
        spans = [Span._make(row) for row in self._rows[self._begin :]]
        main = self.comm.stream_name
        computing = [(s.start_s, s.end_s) for s in spans if s.stream == main and kind(s.name) in COMPUTING]
        start_s = self._begin_s  # a receive that ends now may have been posted before
        end_s = max((s.end_s for s in spans if s.stream == main and kind(s.name) != "wait"), default=start_s)
        talking = [s for s in spans if kind(s.name) in COMMUNICATING and s.start_s < end_s]
        busy = [(max(s.start_s, start_s), min(s.end_s, end_s)) for s in talking]
        sends = [s.bytes for s in spans if s.name == "send"]
        busy_s = covered_s(computing + busy) - covered_s(computing)
        self._costs.append(StepCost(step, sum(sends), len(sends), busy_s, end_s))
        self.begin()
        self.trim()

    def trim(self) -> None:
        """End the record if it has grown too long."""
        if len(self._rows) - self._first > _MOST_ROWS:
            self.comm.recorder.on = False
