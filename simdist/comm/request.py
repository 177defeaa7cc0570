"""Request: a message in flight, and its status when it is done."""

from abc import ABC, abstractmethod
from typing import NamedTuple

__all__ = ["Request", "Status"]


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
