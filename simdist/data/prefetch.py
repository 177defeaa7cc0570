"""Prefetch: the next batches made in the background, while the current one is trained on."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import TypeVar

from simdist.errors import ArgumentError

__all__ = ["Prefetcher"]

T = TypeVar("T")


class Prefetcher(Iterator[T]):
    """Calls make(i) for each i in order, on a thread of its own, and keeps a few results for who takes them.

        with Prefetcher(batch_of, range(steps)) as batches:
            for batch in batches:               # an error in batch_of is raised here
                train(batch)

        thread      | make 0 | make 1 | make 2 |          | make 3 |       at most `depth` ahead
        main                 | train 0         | train 1  | train 2 |

    However the block ends, what was not taken is forgotten, and the thread ends with the call it is in.

    Args:
        make: has the thread to itself; it must not communicate.
        numbers: what to call it with.
        depth: how many results it may be ahead; at least 1.

    Raises:
        ArgumentError: depth is less than 1.
    """

    def __init__(self, make: Callable[[int], T], numbers: Iterable[int], depth: int = 2) -> None:
        if depth < 1:
            raise ArgumentError(f"depth is {depth}; needs at least 1")
        self._make = make
        self._numbers = iter(numbers)
        self._thread = ThreadPoolExecutor(1, "prefetch")
        self._ahead: deque[Future[T]] = deque()
        self._order(depth)

    def __next__(self) -> T:
        if not self._ahead:
            raise StopIteration
        found = self._ahead.popleft().result()
        self._order(1)
        return found

    def _order(self, count: int) -> None:
        self._ahead.extend(self._thread.submit(self._make, i) for i in islice(self._numbers, count))

    def __enter__(self) -> "Prefetcher[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._ahead.clear()
        self._thread.shutdown(cancel_futures=True)
