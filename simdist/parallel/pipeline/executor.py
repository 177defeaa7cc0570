"""Executor: performs a rank's row of any schedule."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, unmetered
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.parallel.pipeline.action import Action, Backward, BackwardInput, BackwardWeight, Forward, Part, Value
from simdist.parallel.pipeline.dataflow import expected
from simdist.parallel.pipeline.messages import Messages
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.stage import MicroBatch, Stage
from simdist.parallel.pipeline.stash import Stash
from simdist.parallel.pipeline.times import Clockwork, Times

__all__ = ["Executor", "Outcome"]


class Outcome(NamedTuple):
    """The result of a run on this rank.

    Attributes:
        loss: the sum of the losses of its stages, in nats.
        outputs: the outputs of the last stage for micro-batches without targets, by number.
    """

    loss: float
    outputs: dict[int, Array]


class Executor:
    """Executes the row of one rank of any schedule, which determines all actions, sends and receives.

        for each place of the row:
            receive the values its action needs from other ranks
            F, B, I, W or two of them on the stage's layers
            send the values that other ranks need

    Each action is a span named by the schedule's label, with its micro-batch. Waiting for messages is outside of it.

    Args:
        schedule: a valid schedule.
        comm: the ranks of the schedule; their other messages must not use the same communicator at the same time.
        stages: the stages of this rank, by chunk.
        like: an array of the same kind as activations.
        dtype: of activations.
        times: how long actions take. If given, the layers' computation takes no virtual time, and a real rank
            sleeps this long in addition.

    Attributes:
        in_flight: the most micro-batches this rank kept at once, each of a p-th part of the model.
        messages: its sends and receives.

    Raises:
        ArgumentError: `comm` has another number of ranks than the schedule, or `times` another number of stages.
    """

    def __init__(
        self,
        schedule: Schedule,
        comm: Communicator,
        stages: Sequence[Stage],
        like: Array,
        dtype: np.dtype,
        times: Times | None = None,
    ) -> None:
        if comm.size != schedule.num_ranks:
            raise ArgumentError(f"{schedule.name} is for {schedule.num_ranks} ranks; there are {comm.size}")
        self.in_flight = 0.0
        self.messages = Messages(schedule, comm, like, dtype)
        self._schedule = schedule
        self._comm = comm
        self._stages = stages
        self._clockwork = None if times is None else Clockwork(schedule, times)
        self._steps = schedule.steps[comm.rank]
        parts = [part for step in self._steps for part in step.action.parts]
        self._has_backward = {(p.chunk, p.micro_batch) for p in parts if not isinstance(p, Forward)}
        self._contexts: dict[tuple[int, int], Any] = {}  # by chunk and micro-batch, of those in flight
        self._values: dict[Value, Array] = {}
        self._losses: dict[tuple[int, int], float] = {}
        self._outputs: dict[int, Array] = {}

    def run(self, batch: Sequence[MicroBatch], shapes: Sequence[Sequence[int]], stash: Stash | None = None) -> Outcome:
        """Execute the row once.

        Args:
            batch: the micro-batches, the same on all ranks.
            shapes: for each stage, the shape of its input without the first axis.
            stash: gives each micro-batch its version of the weights, where there are several.

        Raises:
            Exception: what a stage raises, with a note of stage, rank and micro-batch.

        Cost: the messages of `validate`'s report; for n samples, each has n times the items of its shape.
        """
        for left in (self._losses, self._contexts, self._values):  # the last two by a run that failed
            left.clear()
        self._outputs = {}

        def shape(value: Value) -> tuple[int, ...]:
            return (len(batch[value.micro_batch].inputs), *shapes[value.like_input_of])

        self.messages.sent_bytes = 0
        for place, step in enumerate(self._steps):
            for ahead in expected(self._steps, place):
                self.messages.expect(ahead, shape)
            for message in step.receives:
                self._values[message.value] = self.messages.wait(message.value)
            self._act(step.action, batch, stash)
            for message in step.sends:
                self.messages.send(message, self._values.pop(message.value))
            self.messages.drop_complete()
            if stash is not None:
                stash.update(place)
        self.messages.finish()
        return Outcome(sum((loss for _, loss in sorted(self._losses.items())), 0.0), self._outputs)

    def _act(self, action: Action, batch: Sequence[MicroBatch], stash: Stash | None) -> None:
        """The action at one place of the row, as a span."""
        rank = self._comm.rank
        with self._comm.span(self._schedule.label(rank, action), micro_batch=action.parts[0].micro_batch):
            with nullcontext() if self._clockwork is None else unmetered():
                for part in action.parts:
                    if stash is not None:
                        stash.use(part.micro_batch)
                    try:
                        self._perform(part, batch[part.micro_batch], stash)
                    except Exception as error:
                        where = f"stage {self._schedule.stage(rank, part)} on rank {rank}"
                        error.add_note(f"in {part} of {where} of the pipeline: micro-batch {part.micro_batch}")
                        raise
            if self._clockwork is not None:
                self._comm.spend(self._clockwork.of(rank, action))

    def _perform(self, part: Part, micro_batch: MicroBatch, stash: Stash | None) -> None:
        """An action, or one of two that run at once."""
        i, number = part.micro_batch, self._schedule.stage(self._comm.rank, part)
        key, stage = (part.chunk, i), self._stages[part.chunk]
        value, contexts = part.needs(number), self._contexts
        # The gradient of the stage's own loss, and what is pending, come from the context.
        x = None if value is None else self._values.pop(value, None)
        y: Array | None = None
        match part:
            case Forward():
                y, self._losses[i, number], contexts[key] = stage.forward(x, micro_batch)
                self.in_flight = max(self.in_flight, len(contexts) * self._schedule.share)
                if key not in self._has_backward:
                    del contexts[key]
            case Backward():
                y = stage.backward(contexts.pop(key), x, micro_batch)
            case BackwardInput():
                y, contexts[key] = stage.backward_input(contexts.pop(key), x, micro_batch)
            case BackwardWeight():
                stage.backward_weight(contexts.pop(key))
        if y is not None and isinstance(part, Forward) and stage.loss is not None:
            self._outputs[i] = y
        elif y is not None:
            for given in part.gives(number, self._schedule.num_stages):
                if given.what != "pending":
                    self._values[given] = y if y.flags.c_contiguous else y.copy()
        if isinstance(part, Backward | BackwardWeight) and stash is not None:
            stash.done(i)
