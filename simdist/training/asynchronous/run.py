"""Run: an asynchronous training run, from the initial weights to its results."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from simdist.arrays import Array, partition
from simdist.arrays.memory import keep_freed_memory
from simdist.asynchronous import ModelGradient, first_weights
from simdist.comm import Communicator
from simdist.comm.device import use_device
from simdist.data import Batches
from simdist.errors import ArgumentError
from simdist.training.asynchronous.checkpoint import AsynchronousState, load_checkpoint, read_origin, save_checkpoint
from simdist.training.asynchronous.log import Log, Stretch
from simdist.training.asynchronous.measured_gradient import MeasuredGradient, StepCost
from simdist.training.asynchronous.methods import SERVED, SURVIVING, check_ranks, first_worker
from simdist.training.asynchronous.peer import Peer
from simdist.training.asynchronous.results import Results
from simdist.training.asynchronous.role import RankReport, Role
from simdist.training.asynchronous.served import Served
from simdist.training.asynchronous.validation import Validation
from simdist.training.config import Config
from simdist.training.interrupts import Interrupts, ending
from simdist.training.models import build
from simdist.training.record import broadcast_json, gather_json, gather_trace
from simdist.training.state import State, changes, saved_config
from simdist.training.text import Text
from simdist.training.trainer import Line

__all__ = ["AsynchronousRun"]

Tell = Callable[[int, float], None]


class AsynchronousRun:
    """A training run whose ranks need not wait for each other. It has no common step, and so no `Trainer`.

        run = AsynchronousRun(comm, config)
        for lines in run.run():           # all ranks must iterate over it; rank 0 gets the lines
            ...
        results = run.results()
        texts = run.samples()

    It runs in stretches: one, or one for each checkpoint. Work that makes ranks communicate, and so changes who waits
    for whom, comes at the end of a stretch: the validation losses of the copies of weights kept on the way, their
    consensus error, and the checkpoint of one cut of the run; see `checkpoint`.

    Args:
        comm: the ranks, servers and workers. All of them must call.
        config: the same on all ranks, of an asynchronous method.
        checkpoints: the folder for them; None to write none.
        text: the config's, if it has been read already.
        tell: called on the first worker's rank with (step, its last loss) when it reaches a step of the log.

    Attributes:
        model: bound, after the last stretch, to the weights that the servers have, or to the mean of all ranks'.
        stopped: the signal that asked for the end of the run before its last step, if one did.
        comm: the ranks that are left.
        lost: the workers' ranks that have died, where the method survives that; their parts of the batches are not
            trained on.

    Raises:
        DataError: the text cannot be read or is too short; on all ranks, if it is so on one.
        ArgumentError: the config cannot run on this many ranks; on all of them.
        CollectiveMismatch: on all ranks, if they were given different configs or read different texts.
    """

    def __init__(
        self,
        comm: Communicator,
        config: Config,
        checkpoints: Path | None = None,
        text: Text | None = None,
        tell: Tell | None = None,
    ) -> None:
        check_ranks(config, comm.size)
        self.comm = comm
        self.config = config
        self.checkpoints = checkpoints
        self.stopped: signal.Signals | None = None
        self.lost: list[int] = []
        self.text = Text.of_all(comm, config, text)
        self._first_span = len(comm.recorder.rows)
        keep_freed_memory()
        use_device(comm, config.device, config.device_path or "auto")
        self.model = build(config)
        self._weights = first_weights(self.model, config.precision, config.seed, comm.device.kind)
        size, stride = config.global_batch_size, self.model.targets_per_window
        self._batches = Batches(self.text.train, size, config.seed, config.order, stride)
        self._survives = config.method in SURVIVING and comm.survive()
        self._gradient = self._measured_gradient(tell)
        role = Served if config.method in SERVED else Peer
        self._role: Role = role(comm, config, self.model.parameters, self._weights, self._gradient)
        self._validation = Validation(
            comm, config, self.model, self._weights, self.text, self.marks, self._gradient.snapshots
        )
        self._all_workers = self.num_workers
        self._log = Log(config, self._windows, self.num_workers, self.marks)
        self._stretches: list[Stretch] = []
        self._seconds = 0.0  # of all stretches, including those before a resumption
        self._reports: list[RankReport] = []

    @property
    def num_workers(self) -> int:
        """How many ranks are workers."""
        return self.comm.size - first_worker(self.config)

    @property
    def done(self) -> int:
        """How many steps all workers have made."""
        return min(self._role.done)

    @property
    def diverged_at(self) -> int:
        """The first step, from 1, in which a worker's loss was not finite, as rank 0 knows; 0 if there was none."""
        return self._log.diverged_at

    @property
    def marks(self) -> list[int]:
        """After which steps the log has a line."""
        steps, interval = self.config.steps, self.config.interval
        return sorted({1, *range(interval, steps, interval), steps})

    def run(self, asked: Interrupts | None = None) -> Iterator[list[Line]]:
        """Train: yields the log's new lines at the end of each stretch, on rank 0; an empty list elsewhere.

        Args:
            asked: signals to act on at the next cut. SIGUSR1 writes a checkpoint; the others do so too, and end the
                run.
        """
        every, steps = self.config.checkpoint_every, self.config.steps
        on_record = self.comm.recorder.on
        try:
            while self.done < steps and not self.stopped:
                until = min(steps, (self._role.front // every + 1) * every) if every else steps
                yield self._train_stretch(until, asked)
                heard = asked.agreed(self.comm) if asked else []
                self.stopped = ending(heard)
                if every or heard:
                    self.save()
            self._role.collect()
        finally:
            self.comm.recorder.on = on_record  # which a long run turns off

    def results(self) -> Results | None:
        """The results of the run, on rank 0; None elsewhere. All ranks must call."""
        trace = gather_trace(self.comm, first=self._first_span)
        if trace is None:
            return None
        step, loss = self._validation.last
        return Results(
            config=self.config,
            done=self._role.done,
            validation_loss=loss,
            validation_step=step,
            reports=self._reports,
            record=trace,
            stretches=self._stretches,
            windows=self._windows,
            ranks=self.comm.ranks,
            lost=tuple(self.lost),
            ranks_per_node=self.comm.nodes.most if self.comm.num_nodes > 1 else 0,
        )

    def samples(self) -> list[tuple[bytes, bytes]]:
        """A few windows of the validation text, and what the model writes after each; all ranks must call."""
        return self._validation.evaluator.samples(self)

    def logits(self, tokens: Array) -> Array:
        """What may come next after each row of tokens: see `Model.logits`."""
        return self.model.logits(tokens)

    # -- checkpoints ----------------------------------------------------------------------------------

    def resume(self, root: Path, step: int | None = None) -> list[str]:
        """Resume from a checkpoint, the latest if no step is given; all ranks must call, before `run`.

        Returns:
            the settings that differ from the original run, in words; empty if none do.

        Raises:
            CheckpointError: on all ranks: there is none, it is damaged, or it is of another model or optimizer.
            ArgumentError: on all ranks: it is of the last step, or needs other ranks than these.
        """
        origin = read_origin(root, self.comm, step)
        if origin.step >= self.config.steps:
            raise ArgumentError(f"steps is {self.config.steps}, and {origin.step} are done; give more to go on")
        wanted = self._role.wanted(origin)
        with origin.read_with(self.config):
            state = load_checkpoint(root, self.comm, self.model.parameters, wanted, origin, self.num_workers)
        self._role.restore(wanted, state)
        self._seconds = state.common.seconds
        self._validation.resume(self.done, state.judged)
        self._gradient.skip(self._validation.pending)
        self._log = Log(self.config, self._windows, self.num_workers, self.marks, state.tallies, state.logged_s)
        return changes(self.config, self.text.digest, state.common)

    def save(self) -> None:
        """Write a checkpoint; all ranks must call, between two stretches. Does nothing if there is no folder for it."""
        if self.checkpoints is None:
            return
        tallies, logged_s = broadcast_json(self.comm, [self._log.tallies(), self._log.logged_s])
        loss, targets, auxiliary_loss = (  # for a run with a common step
            sum(numbers[i] for _, numbers in tallies) for i in (0, 1, -1)
        )
        state = AsynchronousState(
            State(saved_config(self.config), self.text.digest, loss, targets, self._seconds, auxiliary_loss),
            self._role.done,
            self._role.optimizer_steps(),
            self._validation.unlogged,
            tallies,
            logged_s,
        )
        keep = self.config.keep_checkpoints or None
        save_checkpoint(self.checkpoints, self.comm, self.model.parameters, self._role.vectors(), state, keep)

    # -- a stretch ------------------------------------------------------------------------------------

    def _train_stretch(self, until: int, asked: Interrupts | None) -> list[Line]:
        """Train one stretch; returns, on rank 0, the lines of the marks that all workers have reached."""
        comm, gradient, first = self.comm, self._gradient, first_worker(self.config)
        comm.barrier()
        start_s = comm.clock()
        gradient.begin()
        report = self._role.train(until, (lambda: asked.rung) if asked else (lambda: False))
        if self._role.comm is not comm:
            self._go_without(self._role.comm)
            comm = self.comm
        # A rank behind the front keeps a copy for the marks that others have passed: a checkpoint has no copies.
        gradient.end(self._weights, max(self._role.front, self._role.done[max(0, comm.rank - first)]))
        seconds = broadcast_json(comm, comm.clock() - start_s)
        self._validation.evaluate()
        gradient.skip(self._validation.pending)
        told = gather_json(comm, report._replace(**gradient.take_costs()))
        if told is not None:
            self._remember(Stretch(start_s, self._seconds), told)
        self._seconds += seconds
        due = self._validation.due(self.done)
        return [self._log.line(mark, loss) for mark, loss in due] if comm.rank == 0 else []

    def _go_without(self, left: Communicator) -> None:
        """Continue with the ranks that are left after others died."""
        kept = [i for i, rank in enumerate(self.comm.ranks) if rank in left.ranks]
        self.lost += sorted(set(self.comm.ranks) - set(left.ranks))
        self._reports = [self._reports[i] for i in kept] if self._reports else []
        self._validation.regroup(left)
        self.comm = left

    def _remember(self, stretch: Stretch, told: list[Any]) -> None:
        """Keep what all ranks tell of a stretch."""
        parts = [RankReport(*each) for each in told]
        parts = [report._replace(costs=[StepCost(*cost) for cost in report.costs]) for report in parts]
        self._stretches.append(stretch)
        first = first_worker(self.config)
        numbers = [rank - first for rank in self.comm.ranks[first:]]
        self._log.add(stretch, dict(zip(numbers, parts[first:], strict=True)))
        self._reports = [a.then(b) for a, b in zip(self._reports, parts, strict=True)] if self._reports else parts

    def _windows(self, step: int, worker: int) -> int:
        """How many windows a worker trains on in a step."""
        return partition(self._batches.size(step), self._all_workers).size(worker)

    def _measured_gradient(self, tell: Tell | None) -> MeasuredGradient:
        comm, config, first = self.comm, self.config, first_worker(self.config)
        gradient = ModelGradient(self.model, self._batches, comm.rank - first, self.num_workers)
        # The copies of one worker are enough if it cannot die.
        keeps = comm.rank == first or config.method not in SERVED or (self._survives and comm.rank > first)
        return MeasuredGradient(
            comm, gradient, self.marks if keeps else [], config.clip_norm, tell if comm.rank == first else None
        )
