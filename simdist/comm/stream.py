"""Stream: a second line of work of a rank."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simdist.comm.communicator import Communicator

__all__ = ["Stream", "Work"]


class Work(ABC):
    """A function under way on another stream."""

    @abstractmethod
    def wait(self) -> Any:
        """Block until it is done; return what it returned or raise what it raised."""


class Stream(ABC):
    """A second line of work of this rank, in order in itself and beside the others.

    Attributes:
        comm: the communicator's twin on this stream: same ranks, and messages that match only each other.
    """

    comm: "Communicator"

    @abstractmethod
    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Work:
        """Call function(*args, **kwargs) on this stream, after all that was started there before."""
