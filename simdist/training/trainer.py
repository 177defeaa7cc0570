"""Trainer: the loop."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from simdist.arrays import partition
from simdist.arrays.memory import keep_freed_memory
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.data import Batches, load
from simdist.nn import Noise
from simdist.optim import SGD, warmup_cosine
from simdist.parallel import DataParallel
from simdist.trace import Trace
from simdist.training.config import Config
from simdist.training.gauge import Gauge
from simdist.training.models import build
from simdist.training.record import gather_trace

__all__ = ["Line", "Trainer"]

_VALIDATION_BYTES = 512  # to be predicted at a time at least, so that NumPy has something to do at once


class Line(NamedTuple):
    """What the log says at the end of an interval. Losses are of all ranks; times and bytes are this rank's.

    Attributes:
        step: how many steps are done.
        train_loss: nats a byte, the mean over the interval's batches, each before its own update.
        validation_loss: nats a byte, over the validation windows, now.
        learning_rate: of the last step.
        tokens_per_s: bytes predicted by all ranks together for each second inside training steps.
        communication_share: of that time, between 0 and 1.
        sent_bytes: a step, for gradients.
    """

    step: int
    train_loss: float
    validation_loss: float
    learning_rate: float
    tokens_per_s: float
    communication_share: float
    sent_bytes: int


class Trainer:
    """A training run, on this rank's part of every batch.

        trainer = Trainer(comm, config)
        for line in trainer.run():        # all ranks must go through it
            ...

    Args:
        comm: the ranks that share each batch. All of them must call.
        config: the same on all ranks.

    Attributes:
        replica: this rank's copy of the model.
        gauge: what the steps so far cost.
        unigram_entropy: of the validation text, in nats a byte: what the loss must get below.

    Raises:
        DataError: the text cannot be read or is too short.
        CollectiveMismatch: on all ranks, if they were given different configs or read different texts.
    """

    def __init__(self, comm: Communicator, config: Config) -> None:
        self.comm = comm
        self.config = config
        self._first_span = len(comm.recorder.rows)
        keep_freed_memory()
        corpus = load(config.data)
        # The file may have another name on another node; what is in it must be the same.
        settings = sha256(replace(config, data="").toml().encode()).hexdigest()
        comm.agree(f"train on text {corpus.digest[:12]} by config {settings[:12]}")
        text, self._validation = corpus.split(config.context_bytes + 1, config.validation_share, config.seed)
        self.unigram_entropy = self._validation.unigram_entropy()
        self._batches = Batches(text, config.global_batch_size, config.seed)
        model = build(config)
        self.targets_per_step = config.global_batch_size * model.targets_per_window
        self.replica = DataParallel(model, comm, config.dtype, config.seed, config.algorithm)
        self._optimizer = SGD(self.replica.weights, config.momentum)
        self.gauge = Gauge(comm, config.trace_steps)

    def run(self) -> Iterator[Line | None]:
        """Train: gives one item a step, a Line after the first and at the end of each interval, else None."""
        config, total = self.config, 0.0
        for step in range(config.steps):
            with self.gauge.step(step):
                total += self._step(step)
            done = step + 1
            if done == 1 or done % config.interval == 0 or done == config.steps:
                yield self._line(done, total)
                total = 0.0
            else:
                yield None

    def trace(self) -> Trace | None:
        """The record of this run on all ranks, as far as it is kept, on rank 0; None elsewhere. All must call."""
        return gather_trace(self.comm, first=self._first_span)

    def _step(self, step: int) -> float:
        """One step; returns the loss summed over this rank's part of the batch."""
        comm, replica = self.comm, self.replica
        windows = self._batches.part(step, comm.rank, comm.size)
        samples = np.arange(self.config.global_batch_size)[
            partition(self.config.global_batch_size, comm.size)[comm.rank]
        ]
        noise = Noise(self.config.seed, step, samples)
        total = replica.backward(windows, 1 / self.targets_per_step, noise)
        with comm.span("update"):
            self._optimizer.step(replica.weights, replica.gradient, self._learning_rate(step))
        return total

    def _learning_rate(self, step: int) -> float:
        return warmup_cosine(step, self.config.steps, self.config.learning_rate, self.config.warmup_steps)

    def _line(self, done: int, total: float) -> Line:
        """The log's line after so many steps; `total` is this rank's training loss since the last one."""
        lap = self.gauge.lap()
        train_loss, validation_loss = self._mean_losses(total, lap.steps * self.targets_per_step)
        return Line(
            step=done,
            train_loss=train_loss,
            validation_loss=validation_loss,
            learning_rate=self._learning_rate(done - 1),
            tokens_per_s=lap.per_second(self.targets_per_step),
            communication_share=lap.communication_share,
            sent_bytes=lap.sent_bytes // lap.steps,
        )

    def _mean_losses(self, total: float, count: int) -> tuple[float, float]:
        """The means over all ranks: of the training loss, summed here to `total`, and of the validation loss."""
        comm, split, model = self.comm, self._validation, self.replica.model
        numbers = split.evenly(self.config.validation_windows)
        own = numbers[partition(len(numbers), comm.size)[comm.rank]]
        sums = np.array([total, 0.0])
        with comm.span("validation"):
            # As many at a time as in a step, so that its activations take no more memory than a step's.
            at_once = max(self.config.global_batch_size // comm.size, _VALIDATION_BYTES // model.targets_per_window, 1)
            for start in range(0, len(own), at_once):
                sums[1] += model.forward(split.windows(own[start : start + at_once]))[0]
            all_reduce(sums, comm)
        return float(sums[0]) / count, float(sums[1]) / (len(numbers) * model.targets_per_window)
