"""Message: requests of workers and answers of servers, each as one flat array of bytes.

    header, int64          kind | clock | start | stop | rows
    row numbers, int64     only if the values are of some rows of the keys start … stop; their number is in the header
    values                 of the weights' dtype

Requests have one tag and answers another, so that a server can take requests in order of arrival.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from simdist.arrays import Array, on_host

__all__ = ["ANSWER", "HEADER_BYTES", "REQUEST", "Kind", "Message", "buffer_for"]


class Kind(IntEnum):
    """What a worker requests, and what a server answers."""

    PULL = 1  # for weights
    PUSH = 2  # with an update
    PUSH_PULL = 3  # with an update, for the weights of the next clock
    LEAVE = 4  # to leave
    HALT = 5  # to release all workers soon

    WEIGHTS = 6
    OVER = 7  # a step is over: an unsolicited notice
    BYE = 8  # the worker has left, or is taken for dead
    END = 9  # the last weights, with which the worker is released


REQUEST, ANSWER = 1, 2
"""The tags."""

HEADER_BYTES = 40
_EVERY_KEY = -1


class Message(NamedTuple):
    """One request or answer.

    Attributes:
        kind: what it is about.
        clock: the step of the update, or the clock of the weights; -1 if a worker does not know its own.
        keys: the range of the flat vector that the message concerns.
        values: flat, one per key; with row numbers, one per key of these rows.
        rows: int64, the rows sent, counted from the start of the whole vector; None if all keys are sent.
    """

    kind: Kind
    clock: int = -1
    keys: slice = slice(0, 0)
    values: Array | None = None
    rows: Array | None = None

    def packed(self) -> Array:
        """As bytes: shape (n,), uint8."""
        count = _EVERY_KEY if self.rows is None else len(self.rows)
        header = np.array((int(self.kind), self.clock, self.keys.start, self.keys.stop, count), np.int64)
        parts = [np.ascontiguousarray(on_host(x)) for x in (header, self.rows, self.values) if x is not None]
        return np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])

    @classmethod
    def unpacked(cls, packet: Array, dtype: np.dtype) -> "Message":
        """From bytes; rows and values are views of them."""
        kind, clock, start, stop, count = packet[:HEADER_BYTES].view(np.int64).tolist()
        if count == _EVERY_KEY:
            return cls(Kind(kind), clock, slice(start, stop), packet[HEADER_BYTES:].view(dtype))
        first = HEADER_BYTES + 8 * count
        rows = packet[HEADER_BYTES:first].view(np.int64)
        return cls(Kind(kind), clock, slice(start, stop), packet[first:].view(dtype), rows)


def buffer_for(like: Array, row_width: int = 1) -> Array:
    """A buffer for the longest message about these keys."""
    return np.empty(HEADER_BYTES + 8 * (len(like) // row_width) + like.nbytes, np.uint8)
