"""Passes: passes of a batch through a pipeline, for training, or forward only, for validation or sampling."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from simdist.arrays import Array, moved, partition, unmetered
from simdist.collectives import broadcast
from simdist.errors import ArgumentError
from simdist.nn import auxiliary
from simdist.parallel.pipeline.action import Forward
from simdist.parallel.pipeline.executor import Executor
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.share import Share
from simdist.parallel.pipeline.stage import MicroBatch
from simdist.parallel.pipeline.stash import Stash
from simdist.parallel.pipeline.times import Times
from simdist.parallel.total import total

__all__ = ["Passes", "StageShapes", "forwards"]


class Passes:
    """Passes through the stages of a schedule; all ranks of the pipeline must call.

    Args:
        share: this rank's stages, their weights bound.
        schedule: the schedule of the stages.
        like: an array of the same kind as activations.
        times: as of `Executor`.

    Attributes:
        executor: executes the schedule.
    """

    def __init__(self, share: Share, schedule: Schedule, like: Array, times: Times | None) -> None:
        self._share = share
        self._schedule = schedule
        self._like = like
        self._times = times
        self.executor = self._executor(schedule)
        self._shapes = StageShapes(share, schedule, like)

    def train(self, batch: Sequence[MicroBatch], stash: Stash | None = None) -> float:
        """Execute the schedule on a batch; returns the loss summed over all micro-batches on all ranks.

        Raises:
            ArgumentError: the batch has more or fewer micro-batches than the schedule.
        """
        comm, schedule = self._share.comm, self._schedule
        if len(batch) != schedule.num_micro_batches:
            raise ArgumentError(
                f"{len(batch)} micro-batches on rank {comm.ranks[comm.rank]}; "
                f"{schedule.name} has {schedule.num_micro_batches}"
            )
        return self._total(self.executor, batch, stash)

    def loss(self, windows: Array) -> float:
        """The loss summed over these windows, which are the same on all ranks and go through as micro-batches."""
        parts = partition(len(windows), self._schedule.num_micro_batches)
        batch = [MicroBatch(*self._share.model.examples(windows[part])) for part in parts]
        return self._total(self._whole, batch)

    def logits(self, tokens: Array) -> Array:
        """The logits of the next token after each row of tokens; tokens and logits are the same on all ranks."""
        padded = moved(self._share.model.padded(tokens), self._like)
        micro_batch = MicroBatch(padded, None, last=tokens.shape[1] - padded.shape[1] - 1)
        outputs = self._single.run([micro_batch], self._shapes.of(padded)).outputs
        logits = outputs[0].copy() if outputs else None  # a copy, as it may be a view of all tokens' logits
        # Only the rank with the last stage has logits; the others learn their dtype and shape from its note.
        comm = self._share.comm
        notes = comm.exchange("" if logits is None else " ".join([logits.dtype.name, *map(str, logits.shape)]))
        root = next(rank for rank, note in enumerate(notes) if note)
        if logits is None:
            dtype, *shape = notes[root].split()
            logits = np.empty_like(self._like, shape=tuple(map(int, shape)), dtype=np.dtype(dtype))
        broadcast(logits, comm, root)
        return logits

    def _total(self, executor: Executor, batch: Sequence[MicroBatch], stash: Stash | None = None) -> float:
        """Run a batch, and return the loss summed over all micro-batches on all ranks."""
        return total(executor.run(batch, self._shapes.of(batch[0].inputs), stash).loss, self._share.comm)

    @cached_property
    def _whole(self) -> Executor:
        return self._executor(forwards(self._schedule, self._schedule.num_micro_batches))

    @cached_property
    def _single(self) -> Executor:
        return self._executor(forwards(self._schedule, 1))

    def _executor(self, schedule: Schedule) -> Executor:
        share = self._share
        return Executor(schedule, share.comm, share.stages, self._like, share.dtype, self._times)


class StageShapes:
    """The shape of each stage's input, without its first axis, the micro-batch's; found once for each shape of inputs.

    Each stage in turn runs forward on an empty batch, and its rank tells all others the shape of the output.

    Args:
        share, schedule, like: as of `Passes`.
    """

    def __init__(self, share: Share, schedule: Schedule, like: Array) -> None:
        self._comm, self._dtype = share.comm, share.dtype
        self._last = schedule.num_stages - 1
        self._own = dict(zip(schedule.placement[share.comm.rank], share.stages, strict=True))
        self._like = like
        self._known: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

    def of(self, inputs: Array) -> list[tuple[int, ...]]:
        """The shapes, by stage. If they are not known yet, all ranks must call at once.

        Args:
            inputs: of the first stage, shape (n, …).
        """
        first = tuple(inputs.shape[1:])
        if first not in self._known:
            with unmetered(), auxiliary.collected():
                self._known[first] = self._found(inputs)
        return self._known[first]

    def _found(self, inputs: Array) -> list[tuple[int, ...]]:
        shapes = [tuple(inputs.shape[1:])]
        for number in range(self._last):
            note, like, dtype = "", (self._like if number else inputs), (self._dtype if number else inputs.dtype)
            if number in self._own:
                empty = np.empty_like(like, shape=(0, *shapes[-1]), dtype=dtype)
                y, _, _ = self._own[number].forward(empty, MicroBatch(empty, None))
                note = "" if y is None else " ".join(map(str, y.shape[1:]))
            told = next(note for note in self._comm.exchange(note) if note)
            shapes.append(tuple(map(int, told.split())))
        return shapes


def forwards(schedule: Schedule, micro_batches: int) -> Schedule:
    """The forwards of a schedule's first micro-batches."""
    parts = ([part for action in row for part in action.parts] for row in schedule.rows)
    rows = [[part for part in row if isinstance(part, Forward) and part.micro_batch < micro_batches] for row in parts]
    return Schedule(f"{schedule.name}, forward", rows, schedule.placement, micro_batches)
