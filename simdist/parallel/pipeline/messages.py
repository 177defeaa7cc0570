"""Messages: the sends and receives of a rank in a pipeline.

             place k                place k+1
    irecv    for k+1 -------------------|            posted one place ahead, so that messages can arrive early
    wait     |-- for k                  |-- for k+1
    action   |   =======                |   =======
    isend    |          |-- of k        |          |-- of k+1
    drop     the earlier sends that are complete, and with them their arrays

No send waits for its receive, so every valid schedule runs without deadlock.
"""

from collections.abc import Callable

import numpy as np

from simdist.arrays import Array, hold
from simdist.comm import Communicator, Request
from simdist.parallel.pipeline.action import Value
from simdist.parallel.pipeline.dataflow import Message, Step
from simdist.parallel.pipeline.schedule import Schedule

__all__ = ["Messages"]


class Messages:
    """The messages of one rank.

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
