"""Executor: performs a rank's row of any schedule."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, hold, unmetered
from simdist.comm import Communicator, Request
from simdist.errors import ArgumentError, MessageMismatch
from simdist.parallel.pipeline.action import Action, Backward, BackwardInput, BackwardWeight, Forward, Part, Value
from simdist.parallel.pipeline.schedule import Message, Schedule, Step, expected
from simdist.parallel.pipeline.stage import MicroBatch, Stage
from simdist.parallel.pipeline.stash import Stash
from simdist.parallel.pipeline.times import Clockwork, Times

__all__ = ["Executor", "Messages", "Outcome"]


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
        self._failed = False

    def run(self, batch: Sequence[MicroBatch], shapes: Sequence[Sequence[int]], stash: Stash | None = None) -> Outcome:
        """Execute the row once.

        Args:
            batch: the micro-batches, the same on all ranks.
            shapes: for each stage, the shape of its input without the first axis.
            stash: gives each micro-batch its version of the weights, where there are several.

        Raises:
            Exception: what a stage raises, with a note of stage, rank and micro-batch.
            MessageMismatch: an earlier run failed on this rank, between others: messages of it may still be on their
                way, and be taken for this one's. Only a new communicator has none of them.

        Cost: the messages of `validate`'s report; for n samples, each has n times the items of its shape.
        """
        self._begin()

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
        self._failed = False
        return Outcome(sum((loss for _, loss in sorted(self._losses.items())), 0.0), self._outputs)

    def _begin(self) -> None:
        """Drop what an earlier run has left, or refuse to go on if that may be messages."""
        if self._failed and self._comm.size > 1:
            name, rank = self._schedule.name, self._comm.rank
            raise MessageMismatch(
                f"{name} failed on rank {rank} of {self._comm.size} before: messages of that run may still be on their "
                "way; needs another communicator"
            )
        for left in (self._losses, self._contexts, self._values):  # the last two by a run that failed
            left.clear()
        self._outputs = {}
        self._failed = True

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


class Messages:
    """The sends and receives of a rank. No send waits for its receive, so every valid schedule runs without deadlock.

                 place k                place k+1
        irecv    for k+1 -------------------|            posted one place ahead, so that messages can arrive early
        wait     |-- for k                  |-- for k+1
        action   |   =======                |   =======
        isend    |          |-- of k        |          |-- of k+1
        drop     the earlier sends that are complete, and with them their arrays

    Args:
        schedule: the schedule of the pipeline.
        comm: the ranks of the schedule.
        like: an array of the same kind as the messages.
        dtype: of the messages.

    Attributes:
        sent_bytes: so far in this run; the executor sets it to 0.
    """

    def __init__(self, schedule: Schedule, comm: Communicator, like: Array, dtype: np.dtype) -> None:
        self.sent_bytes = 0
        self._comm = comm
        self._like = like
        self._dtype = dtype
        self._stages, self._micro_batches = schedule.num_stages, schedule.num_micro_batches
        self._receives: dict[Value, tuple[Request, Array]] = {}
        self._sends: list[Request] = []

    def expect(self, step: Step, shape: Callable[[Value], tuple[int, ...]]) -> None:
        """Post the receives of a place of the row."""
        for message in step.receives:
            buffer = np.empty_like(self._like, shape=shape(message.value), dtype=self._dtype)
            hold("buffers", buffer, "pipeline")
            request = self._comm.irecv(buffer, message.src, self._tag(message.value))
            self._receives[message.value] = request, buffer

    def wait(self, value: Value) -> Array:
        """Wait for an expected message; its array is the caller's."""
        request, buffer = self._receives.pop(value)
        request.wait()
        return buffer

    def send(self, message: Message, x: Array) -> None:
        """Begin to send x, which must not change until the send is complete; keeps x alive until then."""
        self._sends.append(self._comm.isend(x, message.dst, self._tag(message.value)))
        self.sent_bytes += x.nbytes

    def drop_complete(self) -> None:
        """Drop completed sends."""
        for request in [request for request in self._sends if request.over]:
            request.wait()
            self._sends.remove(request)

    def finish(self) -> None:
        """Wait for all sends."""
        while self._sends:
            self._sends.pop(0).wait()

    def _tag(self, value: Value) -> int:
        """A distinct tag for each value: messages may be needed in another order than they are sent."""
        return ((value.what == "gradient") * self._stages + value.stage) * self._micro_batches + value.micro_batch
