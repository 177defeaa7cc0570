"""Trainer: the loop."""

import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from simdist.arrays import Ledger, recorded
from simdist.arrays.memory import keep_freed_memory
from simdist.comm import Communicator
from simdist.comm.device import use_device
from simdist.data import Batches, Part, Prefetcher
from simdist.errors import ArgumentError
from simdist.nn import Noise, auxiliary
from simdist.parallel import check_replicas
from simdist.parallel.total import total
from simdist.trace import Trace
from simdist.trace.memory import remember
from simdist.training.asynchronous.checkpoint import rank_prefix, read_origin
from simdist.training.config import Config
from simdist.training.evaluation import Evaluator
from simdist.training.interrupts import Interrupts, ending
from simdist.training.layout import Layout
from simdist.training.profiler import Profiler
from simdist.training.record import gather_trace
from simdist.training.state import State, changes, restore_state, save_state, saved_config
from simdist.training.text import Text

__all__ = ["Line", "Trainer"]

_LEDGER_STEPS = 3


class Line(NamedTuple):
    """One line of the log, at the end of an interval. Losses are of all ranks; times and bytes are this rank's.

    Attributes:
        step: how many steps are done.
        train_loss: nats a byte, the mean over the interval's batches, each before its own update.
        validation_loss: nats a byte, over the validation windows, after that step.
        learning_rate: of the last step.
        gradient_norm: of the last step, before clipping; nan if not computed.
        tokens_per_s: bytes predicted by all ranks together per second inside training steps.
        communication_share: of that time, between 0 and 1.
        sent_bytes: per step.
        seconds: inside all training steps so far, including those before a resumption.
        auxiliary_loss: of the layers themselves, not included in train_loss: nats a byte, the same mean.
    """

    step: int
    train_loss: float
    validation_loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_s: float
    communication_share: float
    sent_bytes: int
    seconds: float = 0.0
    auxiliary_loss: float = 0.0


class Trainer:
    """A training run, on this rank's part of every batch.

        trainer = Trainer(comm, config)
        for line in trainer.run():        # all ranks must iterate over it
            ...

    Args:
        comm: all ranks of the run. All of them must call.
        config: the same on all ranks.
        checkpoints: the folder for them; None to write none.
        text: the config's, if it has been read already.

    Attributes:
        method: the model, and how the ranks train it together.
        data: the ranks that have different windows of each batch: one of each group that shares a replica.
        done: how many steps are done.
        stopped: the signal that asked for the end of the run before its last step, if one did.
        diverged_at: the first step, from 1, whose loss on this rank was not finite; 0 if there was none.
        profiler: the cost of the steps so far, not counting those before a resumption.
        ledger: what used this rank's memory in a few steps.
        remembered: the start and end times of the last few of these steps.
        text: the training and validation text.

    Raises:
        DataError: the text cannot be read or is too short; on all ranks, if on one.
        CollectiveMismatch: on all ranks, if they were given different configs or read different texts.
    """

    def __init__(
        self, comm: Communicator, config: Config, checkpoints: Path | None = None, text: Text | None = None
    ) -> None:
        self.comm = comm
        self.config = config
        self.checkpoints = checkpoints
        self.done = 0
        self.stopped: signal.Signals | None = None
        self.diverged_at = 0
        self._loss = 0.0  # since the last line: summed over what this rank has seen,
        self._auxiliary_loss = 0.0  # likewise of the layers themselves, of a token once,
        self._targets = 0  # and how many bytes all ranks together have predicted
        self._seconds = 0.0  # before a resumption
        self._first_span = len(comm.recorder.rows)
        keep_freed_memory()
        use_device(comm, config.device, config.device_path or "auto")
        self.text = Text.of_all(comm, config, text)
        self._saved_config = saved_config(config)  # now, while the files that it names exist
        layout = Layout(comm, config)
        self.data = layout.data
        self._rate = config.rates()
        self.ledger = Ledger(comm.clock)
        self.remembered: deque[tuple[float, float]] = deque(maxlen=_LEDGER_STEPS)
        with recorded(self.ledger):
            self.method = layout.method()
        self.ledger.begin()
        stride = self.method.model.targets_per_window
        self._batches = Batches(self.text.train, config.global_batch_size, config.seed, config.order, stride)
        self._evaluator = Evaluator(self.text.validation, self.data, config, stride)
        self.profiler = Profiler(comm, config.trace_steps, self._first_span)

    def run(self, asked: Interrupts | None = None) -> Iterator[Line | None]:
        """Train: yields one item per step: a Line after the first and at the end of each interval, else None.

        Args:
            asked: signals to act on at the end of each step. SIGUSR1 writes a checkpoint; the others do so too, and
                end the run.
        """
        steps = range(self.done, self.config.steps)
        with Prefetcher(lambda step: self._batches.part(step, self.data.rank, self.data.size), steps) as parts:
            for step in steps:
                targets = self._batches.size(step) * self.method.model.targets_per_window
                with self.profiler.step(step, targets), self._remembered(step):
                    with self.comm.span("input"):
                        part = next(parts)
                    self._step(part)
                self.done += 1
                self._targets += targets
                due = self.done in (1, self.config.steps) or self.done % self.config.interval == 0
                yield self._line() if due else None
                self._heed(asked)
                if self.stopped:
                    return

    def resume(self, root: Path, step: int | None = None) -> list[str]:
        """Resume from a checkpoint, the latest if no step is given; all ranks must call, before `run`.

        Returns:
            the settings that differ from the original run, in words; empty if none do.

        Raises:
            CheckpointError: on all ranks: there is none, it is damaged, or it is of another model or optimizer.
            ArgumentError: on all ranks: it is of the last step, or of ranks that each have an optimizer of their own.
        """
        origin = read_origin(root, self.comm, step)
        if self.method.update.rule.vectors():
            rank_prefix(origin, self.comm, per_rank=False, has_state=True)
        if origin.step >= self.config.steps:
            raise ArgumentError(f"steps is {self.config.steps}, and {origin.step} are done; give more to go on")
        with origin.read_with(self.config):
            self.done, state = restore_state(root, self.comm, self.method, origin.step)
        self._targets = state.targets
        self._loss = state.loss if self.data.rank == 0 else 0.0
        self._auxiliary_loss = state.auxiliary_loss if self.comm.rank == 0 else 0.0
        self._seconds = state.seconds
        return changes(self.config, self.text.digest, state)

    def save(self) -> None:
        """Write a checkpoint; all ranks must call. Does nothing if there is no folder for it."""
        if self.checkpoints is None:
            return
        loss = total(self._loss, self.data)
        seconds = float(self.comm.exchange(repr(self._seconds_so_far))[0])  # of rank 0, which writes the log
        auxiliary_loss = self._all_auxiliary_loss()
        # As in a run that resumes from here:
        self._loss = loss if self.data.rank == 0 else 0.0
        self._auxiliary_loss = auxiliary_loss if self.comm.rank == 0 else 0.0
        state = State(self._saved_config, self.text.digest, loss, self._targets, seconds, auxiliary_loss)
        keep = self.config.keep_checkpoints or None
        save_state(self.checkpoints, self.comm, self.done, self.method, state, keep)

    def trace(self) -> Trace | None:
        """The record of this run on all ranks, as far as it is kept, on rank 0; None elsewhere. All must call.

        It includes what used each rank's memory in the last few steps.
        """
        if self.remembered:
            start_s, end_s = self.remembered[0][0], self.remembered[-1][1]
            remember((m for m in self.ledger.moments if start_s <= m.time_s <= end_s), self.comm.recorder)
        return gather_trace(self.comm, first=self._first_span)

    def samples(self) -> list[tuple[bytes, bytes]]:
        """Windows of the validation text, and what the model writes after each; all ranks must call."""
        return self._evaluator.samples(self.method)

    # -- a step ---------------------------------------------------------------------------------------

    @contextmanager
    def _remembered(self, step: int) -> Iterator[None]:
        """Keep the ledger in this step, if it is one of the first, in case the run is stopped, or one of the last.

        In steps of a few milliseconds it takes some percent of the time, and steps are alike.
        """
        if self.profiler.total.steps >= _LEDGER_STEPS and step < self.config.steps - _LEDGER_STEPS:
            yield
            return
        start_s = self.comm.clock()
        with recorded(self.ledger):
            yield
        self.remembered.append((start_s, self.comm.clock()))

    def _step(self, part: Part) -> None:
        """One step."""
        config, method = self.config, self.method
        scale = method.num_updates / (part.batch_size * method.model.targets_per_window)
        micro_batches = part.micro_batches(config.micro_batches)
        noise = [Noise(config.seed, self.done, each.samples) for each in micro_batches]
        with auxiliary.collected() as losses:
            loss = method.train([each.windows for each in micro_batches], scale, self._rate(self.done), noise)
        if not isfinite(loss) and config.device != "phantom":  # which has no loss
            self.diverged_at = self.diverged_at or self.done + 1
        self._loss += loss
        # So many ranks do the same work on the same tokens, outside the layers that tp splits.
        self._auxiliary_loss += losses.total / (1 if config.sequence_parallel else config.tp or 1)
        if config.check_every and (self.done + 1) % config.check_every == 0:
            check_replicas(method.model.parameters, method.comm)

    def _heed(self, asked: Interrupts | None) -> None:
        """At the end of a step: write a checkpoint if one is due, or if a signal asks for one."""
        config = self.config
        heard = asked.agreed(self.comm) if asked else []
        every = config.checkpoint_every
        if heard or (every and (self.done % every == 0 or self.done == config.steps)):
            self.save()
        self.stopped = ending(heard)

    # -- the log --------------------------------------------------------------------------------------

    def _line(self) -> Line:
        """The log's line now."""
        lap = self.profiler.lap()
        train_loss = total(self._loss, self.data) / self._targets
        validation_loss = self._evaluator.loss(self.method.loss)
        auxiliary_loss = self._all_auxiliary_loss() / self._targets
        self._loss, self._auxiliary_loss, self._targets = 0.0, 0.0, 0
        return Line(
            step=self.done,
            train_loss=train_loss,
            validation_loss=validation_loss,
            learning_rate=self._rate(self.done - 1),
            gradient_norm=self.method.update.norm,
            tokens_per_s=lap.per_second(lap.targets),
            communication_share=lap.communication_share,
            sent_bytes=lap.sent_bytes // lap.steps,
            seconds=self._seconds_so_far,
            auxiliary_loss=auxiliary_loss,
        )

    @property
    def _seconds_so_far(self) -> float:
        return self._seconds + self.profiler.total.seconds

    def _all_auxiliary_loss(self) -> float:
        """The loss of the layers themselves since the last line, on all ranks."""
        return total(self._auxiliary_loss, self.comm) if self.config.experts else 0.0
