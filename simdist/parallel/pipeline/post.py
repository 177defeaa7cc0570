"""Post: the messages of a rank in a pipeline.

             place k                place k+1
    irecv    for k+1 -------------------|            posted one place ahead, so that messages can arrive early
    wait     |-- for k                  |-- for k+1
    action   |   =======                |   =======
    isend    |          |-- of k        |          |-- of k+1
    look         which earlier sends are complete, so that their arrays can go

No send waits for its receive, so every valid schedule runs without deadlock.
"""

from collections.abc import Callable

import numpy as np

from simdist.arrays import Array, hold, release
from simdist.comm import Communicator, Request
from simdist.parallel.pipeline.action import Value
from simdist.parallel.pipeline.dataflow import Message, Step
from simdist.parallel.pipeline.schedule import Schedule

__all__ = ["Post"]


class Post:
    """Sends and receives of one rank.

    Args:
        schedule: the schedule of the pipeline.
        comm: the ranks of the schedule.
        like: an array of the same kind as the messages.
        dtype: of the messages.

    Attributes:
        sent_bytes, num_sent: since the last `begin`.
        num_rooms: how many receive buffers it has allocated; they are reused.
    """

    def __init__(self, schedule: Schedule, comm: Communicator, like: Array, dtype: np.dtype) -> None:
        self.begin()
        self.num_rooms = 0
        self._comm = comm
        self._like = like
        self._dtype = dtype
        self._stages, self._micro_batches = schedule.num_stages, schedule.num_micro_batches
        self._coming: dict[Value, tuple[Request, Array]] = {}
        self._going: list[Request] = []
        self._spare: dict[tuple[int, ...], list[Array]] = {}

    def begin(self) -> None:
        """Reset the counts."""
        self.sent_bytes = 0
        self.num_sent = 0

    def expect(self, step: Step, shape: Callable[[Value], tuple[int, ...]]) -> None:
        """Post the receives of a place of the row."""
        for message in step.receives:
            room = self._room(shape(message.value))
            request = self._comm.irecv(room, message.src, self._tag(message.value))
            self._coming[message.value] = request, room

    def take(self, value: Value) -> Array:
        """Wait for an expected message; give its array back with `free`."""
        request, room = self._coming.pop(value)
        request.wait()
        return room

    def send(self, message: Message, x: Array) -> None:
        """Begin to send x, which must not change until the send is complete; keeps x alive until then."""
        self._going.append(self._comm.isend(x, message.dst, self._tag(message.value)))
        self.sent_bytes += x.nbytes
        self.num_sent += 1

    def look(self) -> None:
        """Drop completed sends."""
        going = []
        for request in self._going:
            if request.over:
                request.wait()
            else:
                going.append(request)
        self._going = going

    def finish(self) -> None:
        """Wait for all sends."""
        while self._going:
            self._going.pop(0).wait()

    def free(self, room: Array) -> None:
        """Return the buffer of a receive for reuse."""
        release(room)  # from I to W it may have counted as activations
        self._spare.setdefault(room.shape, []).append(room)

    def _room(self, shape: tuple[int, ...]) -> Array:
        spare = self._spare.get(shape)
        if spare:
            return spare.pop()
        room = np.empty_like(self._like, shape=shape, dtype=self._dtype)
        self.num_rooms += 1
        hold("buffers", room, "pipeline")
        return room

    def _tag(self, value: Value) -> int:
        """A distinct tag for each value: messages may be needed in another order than they are sent."""
        return ((value.what == "gradient") * self._stages + value.stage) * self._micro_batches + value.micro_batch
