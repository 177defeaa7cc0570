"""Pace: one worker's gradient, and what its steps cost, without a word to anybody."""

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np

from simdist.arrays import Array, Meter, charge, metered
from simdist.asynchronous import Gradient, Snapshots
from simdist.comm import Communicator
from simdist.optim.norm import norm
from simdist.trace import Span
from simdist.trace.kind import COLLECTIVES, COMPUTING, MESSAGES, kind
from simdist.training.gauge import covered_s

__all__ = ["Pace"]

_COMMUNICATING = {*COLLECTIVES, *MESSAGES, "wait"}
_MOST_ROWS = 1 << 16
"""How many rows of the record one run's steps may fill."""


class Pace:
    """Finds a worker's gradients as another function does, and takes note of its steps as they begin.

        pace = Pace(comm, gradient, …)
        train(comm, weights, pace, …)           # calls pace(weights, step)
        pace.close()

    A rank that asked the others how far they are would change who waits for whom. So each keeps what it knows until
    all have ended; the record is kept from the beginning, as far as there is room for it.

    Args:
        comm: whose clock and record to read.
        gradient: what finds the gradients, of this rank's data.
        marks: the steps at whose beginning a copy of the weights is kept, in ascending order; none where this
            rank keeps none.
        max_norm: a gradient is clipped to this norm, each worker's by itself; 0 leaves it as it is.
        tell: told of the step and of the loss before it, at each mark; of nothing where not given.

    Attributes:
        snapshots: the copies.
        sent_bytes, communication_s: of each step, of this rank on all streams; as far as they are on the record.
        messages: of all these steps together.
        meter: what the gradients have cost.
        norm: of the last gradient, before clipping; 0 where it is not clipped.
    """

    def __init__(
        self,
        comm: Communicator,
        gradient: Gradient,
        marks: Iterable[int],
        max_norm: float = 0.0,
        tell: Callable[[int, float], None] | None = None,
    ) -> None:
        self.snapshots = Snapshots(comm)
        self.sent_bytes: list[int] = []
        self.communication_s: list[float] = []
        self.messages = 0
        self.meter = Meter()
        self.norm = 0.0
        self._comm = comm
        self._gradient = gradient
        self._marks = deque(marks)
        self._max_norm = max_norm
        self._tell = tell
        self._loss = np.nan
        self._rows = comm.recorder.rows
        self._first = self._begin = len(self._rows)
        self._steps = 0

    def __call__(self, weights: Array, step: int) -> tuple[float, Array]:
        """The loss and its gradient."""
        if self._steps:
            self.close()
        self._steps += 1
        if self._marks and step >= self._marks[0]:
            while self._marks and step >= self._marks[0]:
                self._marks.popleft()
                self.snapshots.take(step, weights)
            if self._tell:
                self._tell(step, self._loss)
        with metered(self.meter):
            self._loss, g = self._gradient(weights, step)
        if self._max_norm:
            self._clip(g)
        return self._loss, g

    def keep(self, weights: Array) -> None:
        """Copies for the marks that no step has come to: of the weights at the end."""
        while self._marks:
            self.snapshots.take(self._marks.popleft(), weights)

    def close(self) -> None:
        """A step is over: add up what it cost, and end the record if it has grown too long. The first one began when
        this was made.
        """
        recorder = self._comm.recorder
        if not recorder.on:
            return
        spans = [Span._make(row) for row in self._rows[self._begin :]]
        main = self._comm.stream_name
        computing = [(s.start_s, s.end_s) for s in spans if s.stream == main and kind(s.name) in COMPUTING]
        busy = [(s.start_s, s.end_s) for s in spans if kind(s.name) in _COMMUNICATING]
        sends = [s.bytes for s in spans if s.name == "send"]
        self.communication_s.append(covered_s(computing + busy) - covered_s(computing))
        self.sent_bytes.append(sum(sends))
        self.messages += len(sends)
        self._begin = len(self._rows)
        self.trim()

    def trim(self) -> None:
        """End the record if it has grown too long."""
        if len(self._rows) - self._first > _MOST_ROWS:
            self._comm.recorder.on = False

    def _clip(self, g: Array) -> None:
        """Scale it down if it is too long."""
        self.norm = norm([g])
        if self.norm > self._max_norm:
            np.multiply(g, self._max_norm / self.norm, out=g)
            charge(g.size, 2 * g.nbytes)
