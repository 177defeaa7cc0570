"""Request: a message in flight, and its status when it is done."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from simdist.comm.communicator import Communicator

__all__ = ["Request", "Status", "complete"]


class Status(NamedTuple):
    """The source, tag and size of a received message; of a sent one, `src` is the receiver."""

    src: int
    tag: int
    num_bytes: int


class Request(ABC):
    """A nonblocking send or receive. Do not touch its array until `wait` returns."""

    _status: Status | None = None

    def wait(self) -> Status:
        """Block until it is done; a receive returns its message's status. A second wait returns the same at once."""
        if self._status is None:
            self._status = self._finish()
        return self._status

    @abstractmethod
    def _finish(self) -> Status:
        """Block until it is done; called by each `wait` until one has returned."""

    @property
    def over(self) -> bool:
        """Whether it is known to be done: then `wait` returns at once, but must still be called."""
        return self._status is not None


def complete(requests: list[Request], comm: "Communicator", what: str) -> None:
    """Wait for these requests, and forget them: they hold their arrays. If it takes time, it is recorded as `what`.

    Inside of a span of computing this tells when it stands still; the name should begin with "wait".
    """
    start_s = comm.clock()
    while requests:
        requests.pop().wait()
    if (end_s := comm.clock()) > start_s:
        comm.recorder.add(comm.stream_name, what, start_s, end_s)
