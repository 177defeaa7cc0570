"""Race: contenders take turns at one collective, so that whatever else the machine does strikes all of them alike.

round 0    meet a meet b meet c        each turn begins when all ranks have met, and ends on the slowest
round 1    meet b meet c meet a
round 2    meet c meet a meet b
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from simdist import collectives
from simdist.arrays import Array, partition
from simdist.collectives import all_reduce
from simdist.collectives.registry import find
from simdist.comm import Communicator

__all__ = ["COPY", "OWN", "Arrays", "Lane", "Times", "contenders", "lane_of", "race"]

COPY = "copy"
"""The limit: every rank copies as many bytes, all at once."""
OWN = ", own memory"
"""What is said of a contender whose arrays lie in memory of its rank's own, and not where all reach them."""

_LEAST = 3  # rounds
_SPARE_ITEMS = 1 << 10  # by which lengths may be rounded up
_POOL_BYTES = 1 << 26  # among which cold arrays take turns: more than last-level caches hold


class Lane(NamedTuple):
    """How the ranks of a job start together, whatever they talk by.

    Attributes:
        meet: returns when all ranks have come.
        largest: the largest of all ranks' values, item by item, of an array of float64.
    """

    meet: Callable[[], Any]
    largest: Callable[[Array], Array]


class Times(NamedTuple):
    """How long turns took, in seconds, as medians and tenths."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        """Of these turns."""
        p10, median, p90 = np.percentile(seconds, [10, 50, 90])
        return cls(float(median), float(p10), float(p90))


def race(calls: Mapping[str, Callable[[int], Any]], lane: Lane, budget_s: float, most: int = 200) -> dict[str, Times]:
    """Let all take turns. All ranks must call this alike.

    Args:
        calls: what each contender does in its turn in round k.
        budget_s: about how long all of them together may take, which says how many rounds there are.
        most: rounds, after one that does not count.

    Returns:
        of each contender, from when the last rank began to when the last one ended.
    """
    names, start_s = list(calls), perf_counter()
    for call in calls.values():
        lane.meet()
        call(0)
    once_s = float(lane.largest(np.array([perf_counter() - start_s]))[0])
    rounds = int(min(most, max(_LEAST, budget_s / once_s)))
    seen = np.zeros((2, len(names), rounds))
    for k in range(rounds):
        for i in range(len(names)):
            j = (i + k) % len(names)
            call = calls[names[j]]
            lane.meet()
            seen[0, j, k] = perf_counter()
            call(k)
            seen[1, j, k] = perf_counter()
    began, ended = lane.largest(seen)
    return {name: Times.of(seconds) for name, seconds in zip(names, ended - began, strict=True)}


# -- simdist's own contenders ---------------------------------------------------------------------------


class Arrays:
    """Three pools of a rank, and in each the array of a round: always the same one, or one after the other.

    Args:
        empty: where the first comes from: `comm.empty`.
        num_bytes: of the longest array.
    """

    def __init__(self, empty: Callable[[int, Any], Array], num_bytes: int) -> None:
        self._items = max(num_bytes, _POOL_BYTES) // 4 + _SPARE_ITEMS
        self.shared: Array = empty(self._items, np.float32)
        self.own, self.other = (np.empty(self._items, np.float32) for _ in range(2))
        for pool in (self.shared, self.own, self.other):
            pool[...] = 0  # the pages are there from now on

    def turns(self, items: int) -> int:
        """How many arrays of so many items there are."""
        return max(1, self._items // items)

    def of(self, pool: Array, items: int, k: int, cold: bool) -> Array:
        """The array of so many items of round k; cold, it has not been touched for as long as the pool is."""
        at = k % self.turns(items) * items if cold else 0
        return pool[at : at + items]


def lane_of(comm: Communicator) -> Lane:
    """How the ranks of a node meet in their memory."""

    def largest(x: Array) -> Array:
        all_reduce(x, comm, "max", "ring")
        return x

    return Lane(comm.peers().meet, largest)


def contenders(
    comm: Communicator, operation: str, names: Sequence[str], items: int, arrays: Arrays, cold: bool
) -> dict[str, Callable[[int], Any]]:
    """What to call of simdist, by algorithm: those without messages on arrays in shared memory, and, under another
    name, in own; those by messages in own, which has larger pages and suits them better.

    Args:
        items: of the whole array; for all_to_all a multiple of the ranks.
    """

    def turn(name: str, pool: Array) -> Callable[[int], Any]:
        def call(k: int) -> Any:
            x = arrays.of(pool, items, k, cold)
            return _perform(comm, operation, name, x, arrays.of(arrays.other, items, k, cold))

        return call

    in_memory = [name for name in names if name == "auto" or not find(operation, name).by_messages]
    found = {name: turn(name, arrays.shared if name in in_memory else arrays.own) for name in names}
    return found | {name + OWN: turn(name, arrays.own) for name in in_memory}


def _perform(comm: Communicator, operation: str, name: str, x: Array, y: Array) -> Any:
    mine = partition(len(x), comm.size)[comm.rank]
    match operation:
        case "all_gather":
            return collectives.all_gather(x[mine], comm, name, out=x)
        case "all_to_all":
            rows = x.reshape(comm.size, -1)
            return collectives.all_to_all(rows, comm, name, out=y.reshape(rows.shape))
        case "gather":
            return collectives.gather(x[mine], comm, algorithm=name)
        case "scatter":
            return collectives.scatter(x if comm.rank == 0 else None, comm, algorithm=name)
    return getattr(collectives, operation)(x, comm, algorithm=name)
