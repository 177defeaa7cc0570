"""Executor: performs a rank's row of any schedule."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from simdist.arrays import Array, metered
from simdist.arrays.kind import owner
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.parallel.pipeline.action import Action, Backward, BackwardInput, BackwardWeight, Forward, Part, Value
from simdist.parallel.pipeline.dataflow import steps
from simdist.parallel.pipeline.post import Post
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.stage import MicroBatch, Stage
from simdist.parallel.pipeline.times import Clockwork, Times

__all__ = ["Executor", "Keeper", "Outcome", "Unheard"]


class Unheard:
    """A meter that tells nobody."""

    def charge(self, flops: int, bytes: int) -> None:
        """Do nothing."""


class Keeper(Protocol):
    """Who sees to it that a micro-batch meets its version of the weights."""

    def use(self, micro_batch: int) -> None:
        """The next part of an action is on this one."""

    def done(self, micro_batch: int) -> None:
        """All of its gradients are there."""

    def update(self, place: int) -> None:
        """This place of the row is done."""


@dataclass
class _Flight:
    """What a stage keeps of a micro-batch: what backward needs, and the arrays of the messages in it."""

    context: Any = None
    rooms: list[Array] = field(default_factory=list)


class Outcome(NamedTuple):
    """What came of a run on this rank.

    Attributes:
        loss: the sum of the losses that its stages found, in nats.
        outputs: what its last stage made of micro-batches without targets, by number.
    """

    loss: float
    outputs: dict[int, Array]


class _Arrived(NamedTuple):
    """A value that is there, and whether a message brought it."""

    x: Array
    by_message: bool


class Executor:
    """Executes the row of one rank of any schedule, which determines all actions, sends and receives.

        for each place of the row:
            receive what its action needs, if it is made on another rank
            F, B, I, W or two of them on the stage's layers
            send what others need of it

    Each action is a span of the name that the schedule gives it, with its micro-batch; the time that a rank waits
    for messages is outside of it.

    Args:
        schedule: a valid one.
        comm: one rank for each of the schedule's; what they send to each other here must not meet other messages.
        stages: this rank's, by chunk.
        like: an array of the kind that activations are.
        dtype: of activations.
        times: how long actions take; if given, the layers' computation takes no virtual time, and a real rank
            sleeps for this long in addition to it.

    Attributes:
        in_flight: the most micro-batches, of a p-th part of the model, that this rank kept at once.
        post: its messages.

    Raises:
        ArgumentError: there is another number of ranks, or times of another number of stages.
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
        self.post = Post(schedule, comm, like, dtype)
        self._schedule = schedule
        self._comm = comm
        self._stages = stages
        self._clockwork = None if times is None else Clockwork(schedule, times)
        self._steps = steps(schedule)[comm.rank]
        parts = [part for step in self._steps for part in step.action.parts]
        self._returning = {(p.chunk, p.micro_batch) for p in parts if not isinstance(p, Forward)}
        self._flights: dict[tuple[int, int], _Flight] = {}
        self._values: dict[Value, _Arrived] = {}
        self._losses: dict[tuple[int, int], float] = {}
        self._outputs: dict[int, Array] = {}

    def run(
        self, batch: Sequence[MicroBatch], tails: Sequence[tuple[int, ...]], keeper: Keeper | None = None
    ) -> Outcome:
        """Go through the row once.

        Args:
            batch: the micro-batches, the same on all ranks.
            tails: for each stage the shape of its input, without the first axis.
            keeper: of weight versions, where there are several.

        Raises:
            Exception: what a stage raises, with a note of stage, rank and micro-batch.

        Cost: the messages of `validate`'s report; of n samples, each has n times the items of its tail.
        """
        self._losses.clear()
        self._outputs = {}

        def shape(value: Value) -> tuple[int, ...]:
            stage = value.stage + (value.what == "gradient")  # the gradient of its output has the next one's input's
            return (len(batch[value.micro_batch].inputs), *tails[stage])

        self.post.begin()
        for step in self._steps[:1]:
            self.post.expect(step, shape)
        for place, step in enumerate(self._steps):
            for following in self._steps[place + 1 : place + 2]:
                self.post.expect(following, shape)
            for message in step.receives:
                self._values[message.value] = _Arrived(self.post.take(message.value), True)
            self._act(step.action, batch, keeper)
            for message in step.sends:
                self.post.send(message, self._values.pop(message.value).x)
            self.post.look()
            if keeper is not None:
                keeper.update(place)
        self.post.finish()
        return Outcome(sum((loss for _, loss in sorted(self._losses.items())), 0.0), self._outputs)

    def _act(self, action: Action, batch: Sequence[MicroBatch], keeper: Keeper | None) -> None:
        """One place of the row, as a span."""
        rank = self._comm.rank
        with self._comm.span(self._schedule.label(rank, action), micro_batch=action.parts[0].micro_batch):
            with nullcontext() if self._clockwork is None else metered(Unheard()):
                for part in action.parts:
                    try:
                        self._perform(part, batch[part.micro_batch], keeper)
                    except Exception as error:
                        where = f"stage {self._schedule.stage(rank, part)} on rank {rank}"
                        error.add_note(f"in {part} of {where} of the pipeline: micro-batch {part.micro_batch}")
                        raise
            if self._clockwork is not None:
                self._comm.spend(self._clockwork.of(rank, action))

    def _perform(self, part: Part, micro_batch: MicroBatch, keeper: Keeper | None) -> None:
        """An action, or one of two that are done at once."""
        i, number = part.micro_batch, self._schedule.stage(self._comm.rank, part)
        key, stage = (part.chunk, i), self._stages[part.chunk]
        if keeper is not None:
            keeper.use(i)
        flight = self._flights.setdefault(key, _Flight())
        x = None if isinstance(part, BackwardWeight) else self._take(part.needs(number), flight)
        made: Array | None = None
        match part:
            case Forward():
                made, self._losses[i, number], flight.context = stage.forward(x, micro_batch)
                self.in_flight = max(self.in_flight, len(self._flights) * self._schedule.share)
            case Backward():
                made = stage.backward(flight.context, x, micro_batch)
            case BackwardInput():
                made, flight.context = stage.backward_input(flight.context, x, micro_batch)
            case BackwardWeight():
                stage.backward_weight(flight.context)
        if made is not None and isinstance(part, Forward) and stage.loss is not None:
            self._outputs[i] = made
        else:
            self._leave(part, number, made, x)
        last = isinstance(part, Backward | BackwardWeight)
        if last and keeper is not None:
            keeper.done(i)
        if last or key not in self._returning:
            del self._flights[key]
            for room in flight.rooms:
                self.post.free(room)

    def _take(self, value: Value | None, flight: _Flight) -> Array | None:
        """What an action needs; None where nothing is needed, or it is a gradient that the stage makes itself."""
        if value is None or value not in self._values:
            return None
        arrived = self._values.pop(value)
        if arrived.by_message:
            flight.rooms.append(arrived.x)
        return arrived.x

    def _leave(self, part: Part, number: int, made: Array | None, x: Array | None) -> None:
        """Keep what was made until it is sent, or used on this rank."""
        for value in part.gives(number, self._schedule.num_stages):
            if value.what == "pending" or made is None:
                continue
            # A stage may return its input, or a view of it: the buffer of a message, which is used again.
            kept = made if owner(made) is not owner(x) and made.flags.c_contiguous else made.copy()
            self._values[value] = _Arrived(kept, False)
