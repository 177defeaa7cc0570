"""Prefetch: the next batches made in the background, while the current one is trained on."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from simdist.errors import ArgumentError

__all__ = ["Prefetcher"]

T = TypeVar("T")

_Orders: TypeAlias = "SimpleQueue[tuple[int, Future[Any]] | None]"
"""What is to be made, and where to leave it; None at the end."""


class Prefetcher(Iterator[T]):
    """Calls make(i) for each i in order, on its own thread, and keeps a few results until they are taken.

        with Prefetcher(batch_of, range(steps)) as batches:
            for batch in batches:               # an error in batch_of is raised here
                train(batch)

        thread      | make 0 | make 1 | make 2 |          | make 3 |       at most `depth` ahead
        main                 | train 0         | train 1  | train 2 |

    However the block ends, results not taken are dropped, and the thread ends after its current call.

    Args:
        make: called on that thread; it must not communicate.
        numbers: the values of i.
        depth: how many results the thread may be ahead; at least 1.

    Raises:
        ArgumentError: depth is less than 1.
    """

    def __init__(self, make: Callable[[int], T], numbers: Iterable[int], depth: int = 2) -> None:
        if depth < 1:
            raise ArgumentError(f"depth is {depth}; needs at least 1")
        self._numbers = iter(numbers)
        self._orders: _Orders = SimpleQueue()
        self._ahead: deque[Future[T]] = deque()
        self._order(depth)  # before there is a thread: where the numbers raise, none is left
        # An executor's thread is none that a process can end without: where Ctrl-C comes while it starts, before the
        # block is entered, nobody would ever tell it that there is nothing left to do.
        self._thread = Thread(target=_work, args=(make, self._orders), name="prefetch", daemon=True)
        self._thread.start()

    def __next__(self) -> T:
        if not self._ahead:
            raise StopIteration
        found = self._ahead.popleft().result()
        self._order(1)
        return found

    def _order(self, count: int) -> None:
        for i in islice(self._numbers, count):
            result: Future[T] = Future()
            self._ahead.append(result)
            self._orders.put((i, result))

    def __enter__(self) -> "Prefetcher[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for result in self._ahead:
            result.cancel()
        self._ahead.clear()
        self._orders.put(None)
        self._thread.join()


def _work(make: Callable[[int], Any], orders: _Orders) -> None:
    """The thread: make what is ordered, in order, but for what nobody wants any more."""
    while (order := orders.get()) is not None:
        i, result = order
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(make(i))
            except BaseException as error:  # whoever takes the result gets it
                result.set_exception(error)
