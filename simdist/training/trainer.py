"""Trainer: the loop."""

import signal
from collections.abc import Iterator
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simdist.arrays import Array, partition
from simdist.arrays.memory import keep_freed_memory
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.data import Batches, Part, Prefetcher, load
from simdist.errors import ArgumentError
from simdist.nn import Noise
from simdist.parallel import check_replicas
from simdist.trace import Trace
from simdist.training.config import Config
from simdist.training.gauge import Gauge
from simdist.training.interrupts import Interrupts
from simdist.training.methods import distribute
from simdist.training.models import build
from simdist.training.record import gather_trace
from simdist.training.sampling import sample
from simdist.training.state import State, changes, restore_state, save_state

__all__ = ["Line", "Trainer"]

_VALIDATION_BYTES = 512  # to be predicted at a time at least, so that NumPy has something to do at once
_PROMPTS = 3


class Line(NamedTuple):
    """What the log says at the end of an interval. Losses are of all ranks; times and bytes are this rank's.

    Attributes:
        step: how many steps are done.
        train_loss: nats a byte, the mean over the interval's batches, each before its own update.
        validation_loss: nats a byte, over the validation windows, now.
        learning_rate: of the last step.
        gradient_norm: of the last step, before clipping; 0 where nothing asks for it.
        tokens_per_s: bytes predicted by all ranks together for each second inside training steps.
        communication_share: of that time, between 0 and 1.
        sent_bytes: a step.
    """

    step: int
    train_loss: float
    validation_loss: float
    learning_rate: float
    gradient_norm: float
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
        checkpoints: the folder for them; None where none are to be written.

    Attributes:
        method: the model, and how the ranks train it together.
        done: how many steps are done.
        stopped: the signal that asked for the end of the run before its last step, if one did.
        gauge: what the steps so far cost, those before a resumption not counted.
        unigram_entropy, bigram_entropy: of the validation text, in nats a byte: what the loss must get below.

    Raises:
        DataError: the text cannot be read or is too short.
        CollectiveMismatch: on all ranks, if they were given different configs or read different texts.
    """

    def __init__(self, comm: Communicator, config: Config, checkpoints: Path | None = None) -> None:
        self.comm = comm
        self.config = config
        self.checkpoints = checkpoints
        self.done = 0
        self.stopped: signal.Signals | None = None
        self._loss = 0.0  # since the last line: summed over what this rank has seen,
        self._targets = 0  # and how many bytes all ranks together have predicted
        self._first_span = len(comm.recorder.rows)
        keep_freed_memory()
        corpus = load(config.data)
        self._text = corpus.digest
        # The file may have another name on another node; what is in it must be the same.
        settings = sha256(replace(config, data="").toml().encode()).hexdigest()
        comm.agree(f"train on text {self._text[:12]} by config {settings[:12]}")
        text, self._validation = corpus.split(config.context_bytes + 1, config.validation_share, config.seed)
        self.unigram_entropy = self._validation.unigram_entropy()
        self.bigram_entropy = self._validation.bigram_entropy()
        model = build(config)
        self._batches = Batches(text, config.global_batch_size, config.seed, config.order, model.targets_per_window)
        self._rate = config.rates()
        self.method = distribute(model, comm, config)
        self.gauge = Gauge(comm, config.trace_steps)

    def run(self, asked: Interrupts | None = None) -> Iterator[Line | None]:
        """Train: gives one item a step, a Line after the first and at the end of each interval, else None.

        Args:
            asked: signals to heed at the end of each step. SIGUSR1 leaves a checkpoint; the others do so too, and
                end the run.
        """
        steps = range(self.done, self.config.steps)
        with Prefetcher(self._part, steps) as parts:
            for step in steps:
                targets = self._batches.size(step) * self.method.model.targets_per_window
                with self.gauge.step(step, targets):
                    with self.comm.span("input"):
                        part = next(parts)
                    self._step(part)
                self.done += 1
                self._targets += targets
                yield self._line() if self._line_is_due() else None
                self._heed(asked)
                if self.stopped:
                    return

    def resume(self, root: Path, step: int | None = None) -> list[str]:
        """Go on from a checkpoint, the latest where no step is given; all ranks must call, before `run`.

        Returns:
            in what the run goes on otherwise than it began, in words; nothing if the rest of it is as though it
            had never stopped.

        Raises:
            CheckpointError: on all ranks: there is none, it is damaged, or it is of another model or optimizer.
            ArgumentError: on all ranks: it is of the last step.
        """
        self.done, state = restore_state(root, self.comm, self.method, step)
        if self.done >= self.config.steps:
            raise ArgumentError(f"steps is {self.config.steps}, and {self.done} are done; give more to go on")
        self._targets = state.targets
        self._loss = state.loss if self.comm.rank == 0 else 0.0
        return changes(self.config, self._text, state)

    def save(self) -> None:
        """Write a checkpoint; all ranks must call. Does nothing where there is no folder for it."""
        if self.checkpoints is None:
            return
        loss = np.array([self._loss])
        all_reduce(loss, self.comm)
        self._loss = float(loss[0]) if self.comm.rank == 0 else 0.0  # as a run has it that goes on from here
        config = asdict(self.config) | {"data": ""}  # which may have another name on another node
        state = State(config, self._text, float(loss[0]), self._targets)
        keep = self.config.keep_checkpoints or None
        save_state(self.checkpoints, self.comm, self.done, self.method, state, keep)

    def trace(self) -> Trace | None:
        """The record of this run on all ranks, as far as it is kept, on rank 0; None elsewhere. All must call."""
        return gather_trace(self.comm, first=self._first_span)

    def samples(self) -> list[tuple[bytes, bytes]]:
        """Windows of the validation text, and what the model writes after each; all ranks must call."""
        config = self.config
        prompts = self._validation.windows(self._validation.evenly(_PROMPTS))[:, 1:]
        with self.comm.span("samples"):
            written = sample(self.method, prompts, config.sample_bytes, config.temperature, config.seed)
        return [(prompt.tobytes(), text.tobytes()) for prompt, text in zip(prompts, written, strict=True)]

    # -- a step ---------------------------------------------------------------------------------------

    def _part(self, step: int) -> Part:
        """This rank's part of a batch."""
        return self._batches.part(step, self.comm.rank, self.comm.size)

    def _step(self, part: Part) -> None:
        """One step."""
        config, method = self.config, self.method
        scale = 1 / (part.batch_size * method.model.targets_per_window)
        *others, last = part.micro_batches(config.micro_batches)
        for micro_batch in (*others, last):
            noise = Noise(config.seed, self.done, micro_batch.samples)
            self._loss += method.backward(micro_batch.windows, scale, noise, last=micro_batch is last)
        method.step(self._rate(self.done))
        if config.check_every and (self.done + 1) % config.check_every == 0:
            check_replicas(method.model.parameters, self.comm)

    def _heed(self, asked: Interrupts | None) -> None:
        """At the end of a step: write a checkpoint if it is time, or if a signal asks for one."""
        config = self.config
        heard = asked.agreed(self.comm) if asked else []
        every = config.checkpoint_every
        if heard or (every and (self.done % every == 0 or self.done == config.steps)):
            self.save()
        self.stopped = next((number for number in heard if number != signal.SIGUSR1), None)

    # -- the log --------------------------------------------------------------------------------------

    def _line_is_due(self) -> bool:
        return self.done in (1, self.config.steps) or self.done % self.config.interval == 0

    def _line(self) -> Line:
        """The log's line now."""
        lap = self.gauge.lap()
        train_loss, validation_loss = self._mean_losses()
        self._loss, self._targets = 0.0, 0
        return Line(
            step=self.done,
            train_loss=train_loss,
            validation_loss=validation_loss,
            learning_rate=self._rate(self.done - 1),
            gradient_norm=self.method.update.norm,
            tokens_per_s=lap.per_second(lap.targets),
            communication_share=lap.communication_share,
            sent_bytes=lap.sent_bytes // lap.steps,
        )

    def _mean_losses(self) -> tuple[float, float]:
        """The means over all ranks: of the training loss since the last line, and of the validation loss."""
        comm, model = self.comm, self.method.model
        numbers = self._validation.evenly(self.config.validation_windows)
        sums = np.array([self._loss, 0.0])
        with comm.span("validation"):
            for own in self._portions(numbers):
                sums[1] += self.method.loss(self._validation.windows(own))
            all_reduce(sums, comm)
        return float(sums[0]) / self._targets, float(sums[1]) / (len(numbers) * model.targets_per_window)

    def _portions(self, numbers: Array) -> list[Array]:
        """This rank's part of these windows, in portions: as many on every rank, some of them maybe empty.

        As many windows at a time as in a step, so that their activations take no more memory than a step's.
        """
        config, p = self.config, self.comm.size
        least = _VALIDATION_BYTES // self.method.model.targets_per_window
        at_once = max(config.global_batch_size // p // config.micro_batches, least, 1)
        own = numbers[partition(len(numbers), p)[self.comm.rank]]
        return [own[run] for run in partition(len(own), -(-len(numbers) // (p * at_once)))]
