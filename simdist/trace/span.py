"""Span: one activity of a rank, with its start and end."""

from typing import NamedTuple

__all__ = ["Span"]


class Span(NamedTuple):
    """One entry of the record.

    A message is a span `send` on its sender and a span `recv` on its receiver; a collective is a span that
    encloses its messages; computing is a span `compute`, or a span with another name.

    Attributes:
        rank: the global rank whose span this is.
        stream: the stream: "main" or a name given to `comm.stream`.
        name: "send", "recv", "compute", or an operation, such as "all_reduce ring".
        start_s, end_s: on the world's clock. A receive starts when it is posted, not when the transfer begins.
        bytes: of the message, or of the array that a collective works on.
        peer: the global rank at the other end of a message; -1 if none.
        tag: of the message.
        context: the communicator of a message; messages of different communicators never match.
        micro_batch: the pipeline micro-batch that this belongs to; -1 if none.
        detail: further information, as text.
    """

    rank: int
    stream: str
    name: str
    start_s: float
    end_s: float
    bytes: int = 0
    peer: int = -1
    tag: int = 0
    context: str = ""
    micro_batch: int = -1
    detail: str = ""

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.end_s - self.start_s
