"""Stream: a queue of work that a rank runs beside its main program."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from simdist.errors import ArgumentError

if TYPE_CHECKING:
    from simdist.comm.communicator import Communicator

__all__ = ["Stream", "Work", "check_call"]


class Work(ABC):
    """A function that was started on a stream."""

    @abstractmethod
    def wait(self) -> Any:
        """Block until it is done; return what it returned or raise what it raised.

        If earlier work on the stream failed, too, and nobody has waited for it, raise that error: it may be the cause,
        as of a CollectiveMismatch where a rank has skipped a call.
        """


class Stream(ABC):
    """A queue of work of this rank: the functions run in order, concurrently with the rank's other streams.

    Attributes:
        comm: the communicator's twin for this stream: the same ranks, and messages that match only each other.
    """

    comm: "Communicator"

    @abstractmethod
    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Work:
        """Call function(*args, **kwargs) on this stream, after all work that was started there before.

        Until its `wait` the function may use the arrays it was given. Work that nobody waits for is done by the end of
        the program, without a warning; its error is then the program's.

        Raises:
            ArgumentError: function cannot be called, or an argument is a communicator of another stream.
        """


def check_call(stream: str, function: object, args: Iterable[object]) -> None:
    """Raise ArgumentError unless a stream of this name can call the function with these arguments.

    `start(all_reduce(x, comm))` passes the result of a call. In `start(all_reduce, x, comm)` messages of one
    communicator would come from two streams at a time, in an order that differs from rank to rank.
    """
    example = "as in start(all_reduce, x, side.comm)"
    if not callable(function):
        raise ArgumentError(
            f"start on stream {stream!r} of {function!r}; needs a function and its arguments, {example}"
        )
    for x in args:
        other = getattr(x, "stream_name", stream)
        if other != stream:
            raise ArgumentError(
                f"start on stream {stream!r} with a communicator of stream {other!r}; needs the stream's own, {example}"
            )
