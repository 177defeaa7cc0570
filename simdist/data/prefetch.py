"""Prefetch: makes the next batches in the background, while a step trains on the current one."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias, TypeVar

from simdist.errors import require_whole

__all__ = ["Prefetcher"]

T = TypeVar("T")

_Orders: TypeAlias = "SimpleQueue[tuple[int, Future[Any]] | None]"
"""The numbers of results to make, with the future of each; None at the end."""


class Prefetcher(Iterator[T]):
    """Calls make(i) for each i in order, on a separate thread, and keeps a few results until they are taken.

        with Prefetcher(batch_of, range(steps)) as batches:
            for batch in batches:               # an error in batch_of is raised here
                train(batch)

        thread      | make 0 | make 1 | make 2 |          | make 3 |       at most `depth` ahead
        main                 | train 0         | train 1  | train 2 |

    When the block ends, results not taken are dropped, and the thread ends after its current call.

    Args:
        make: called on that thread; it must not communicate.
        numbers: the values of i.
        depth: the most results that the thread may be ahead; at least 1.

    Raises:
        ArgumentError: depth is no whole number of at least 1.
    """

    def __init__(self, make: Callable[[int], T], numbers: Iterable[int], depth: int = 2) -> None:
        require_whole("depth", depth, 1)
        self._numbers = iter(numbers)
        self._orders: _Orders = SimpleQueue()
        self._ahead: deque[Future[T]] = deque()
        self._order(depth)  # before the thread starts, so that none is left if the numbers raise
        # A daemon, because a process waits at its end for an executor's threads. After Ctrl-C while the thread starts,
        # before the block is entered, this one would never be told to end.
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

    def __exit__(self, *_: object) -> None:
        for result in self._ahead:
            result.cancel()
        self._ahead.clear()
        self._orders.put(None)
        self._thread.join()


def _work(make: Callable[[int], Any], orders: _Orders) -> None:
    """The thread: make the results in order, except those that were cancelled."""
    while (order := orders.get()) is not None:
        i, result = order
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(make(i))
            except BaseException as error:  # raised where the result is taken
                result.set_exception(error)
