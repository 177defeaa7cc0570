"""Stream: a queue of work that a rank runs beside its main program."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simdist.comm.communicator import Communicator

__all__ = ["Stream", "Work"]


class Work(ABC):
    """A function that was started on a stream."""

    @abstractmethod
    def wait(self) -> Any:
        """Block until it is done; return what it returned or raise what it raised."""


class Stream(ABC):
    """A queue of work of this rank: the functions run in order, concurrently with the rank's other streams.

    Attributes:
        comm: the communicator's twin for this stream: the same ranks, and messages that match only each other.
    """

    comm: "Communicator"

    @abstractmethod
    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Work:
        """Call function(*args, **kwargs) on this stream, after all work that was started there before."""
