"""Message: requests of workers and answers of servers, each as one flat array of bytes.

    header, int64          kind | clock | start | stop | rows
    row numbers, int64     so many, where only some rows of the keys start … stop are sent
    values                 of the weights' dtype

Requests have one tag and answers another, so that a server takes whatever arrives first.
"""

from typing import NamedTuple

import numpy as np

from simdist.arrays import Array, on_host

__all__ = [
    "ANSWER",
    "BYE",
    "END",
    "HALT",
    "HEADER_BYTES",
    "LEAVE",
    "OVER",
    "PULL",
    "PUSH",
    "PUSH_PULL",
    "REQUEST",
    "WEIGHTS",
    "Message",
    "room",
]

PULL, PUSH, PUSH_PULL, LEAVE, HALT = 1, 2, 3, 4, 8
"""What workers ask: for weights; to take an update; both, the weights being those of the next clock; to go; that all
workers be let go soon."""
WEIGHTS, OVER, BYE, END = 5, 6, 7, 9
"""What servers answer: the weights; unasked, that a step is over; that they know that the worker has gone; the weights,
and that the worker is to go."""

REQUEST, ANSWER = 1, 2
"""The tags."""

HEADER_BYTES = 40
_EVERY_KEY = -1


class Message(NamedTuple):
    """One request or answer.

    Attributes:
        kind: what it says.
        clock: the step of the update, or that the weights are for; -1 if a worker does not know its own.
        keys: of the flat vector, which it is about.
        values: flat, one a key; with row numbers, one a key of these rows.
        rows: int64, the only rows sent, counted from the vector's start; None where all keys are.
    """

    kind: int
    clock: int = -1
    keys: slice = slice(0, 0)
    values: Array | None = None
    rows: Array | None = None

    def packed(self) -> Array:
        """As bytes: shape (n,), uint8."""
        count = _EVERY_KEY if self.rows is None else len(self.rows)
        header = np.array((self.kind, self.clock, self.keys.start, self.keys.stop, count), np.int64)
        parts = [np.ascontiguousarray(on_host(x)) for x in (header, self.rows, self.values) if x is not None]
        return np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])

    @classmethod
    def unpacked(cls, packet: Array, dtype: np.dtype) -> "Message":
        """From bytes; rows and values are views of them."""
        kind, clock, start, stop, count = packet[:HEADER_BYTES].view(np.int64).tolist()
        if count == _EVERY_KEY:
            return cls(kind, clock, slice(start, stop), packet[HEADER_BYTES:].view(dtype))
        first = HEADER_BYTES + 8 * count
        rows = packet[HEADER_BYTES:first].view(np.int64)
        return cls(kind, clock, slice(start, stop), packet[first:].view(dtype), rows)


def room(like: Array, row_width: int = 1) -> Array:
    """Memory for the longest message about these keys."""
    return np.empty(HEADER_BYTES + 8 * (len(like) // row_width) + like.nbytes, np.uint8)
