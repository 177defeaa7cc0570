"""Race: contenders take turns at one collective, so that other load on the machine affects all of them alike.

round 0    meet b meet c meet a        each turn begins when all ranks have met, and ends with the slowest
round 1    meet a meet c meet b        each round has another order, the same on all ranks, so that none always
round 2    meet c meet b meet a        follows the same one, with the caches as that one left them
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from simdist import collectives
from simdist.arrays import Array, slices
from simdist.collectives import all_reduce
from simdist.collectives.registry import find
from simdist.comm import Communicator

__all__ = ["COPY", "OWN", "Arrays", "Lane", "Times", "contenders", "lane_of", "race"]

COPY = "copy"
"""The limit: all ranks copy the same number of bytes at once."""
OWN = ", own memory"
"""Suffix of a contender whose arrays are in its rank's private memory, not in shared memory."""

_LEAST = 3  # rounds
_SPARE_ITEMS = 1 << 10  # room for rounding up lengths
_POOL_BYTES = 1 << 26  # cold arrays take turns in so many: more than last-level caches hold


class Lane(NamedTuple):
    """How the ranks of a job start together, for any communication library.

    Attributes:
        meet: a barrier: returns when all ranks have arrived.
        largest: the elementwise maximum of an array of float64 over all ranks.
    """

    meet: Callable[[], Any]
    largest: Callable[[Array], Array]


class Times(NamedTuple):
    """The median and the first and last decile of the times of turns, in seconds."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        """The statistics of these turns."""
        p10, median, p90 = np.percentile(seconds, [10, 50, 90])
        return cls(float(median), float(p10), float(p90))


def race(
    calls: Mapping[str, Callable[[int], Any]], lane: Lane, budget_s: float, most: int = 200, warm: bool = True
) -> dict[str, Times]:
    """Let all take turns. All ranks must call this with the same arguments.

    Args:
        calls: what each contender does in its turn in round k.
        budget_s: approximate time for all of them together; it determines the number of rounds.
        most: the most rounds, after a warm-up round.
        warm: whether each runs twice in its turn and only the second run counts: then the caches hold its own data, not
            that of the previous contender.

    Returns:
        for each contender, the time of the slowest rank. Counting from the start of the last rank would leave out what
        the others had done by then: nearly half of it, where two ranks share a core and one runs after the other.
    """
    names, start_s = list(calls), perf_counter()
    for call in calls.values():
        lane.meet()
        call(0)
    once_s = float(lane.largest(np.array([perf_counter() - start_s]))[0])
    rounds = int(min(most, max(_LEAST, budget_s / once_s / (1 + warm))))
    seen = np.zeros((len(names), rounds))
    orders = np.random.default_rng(0)
    for k in range(rounds):
        for j in orders.permutation(len(names)).tolist():
            call = calls[names[j]]
            lane.meet()
            if warm:
                call(k)
                lane.meet()
            began_s = perf_counter()
            call(k)
            seen[j, k] = perf_counter() - began_s
    return {name: Times.of(seconds) for name, seconds in zip(names, lane.largest(seen), strict=True)}


# -- simdist's own contenders ---------------------------------------------------------------------------


class Arrays:
    """Three pools of a rank, each of which provides the array of a round: always the same one, or each in turn.

    Args:
        empty: allocates the first pool: `comm.empty`.
        num_bytes: of the longest array.
    """

    def __init__(self, empty: Callable[[int, Any], Array], num_bytes: int) -> None:
        self._items = max(num_bytes, _POOL_BYTES) // 4 + _SPARE_ITEMS
        self.shared: Array = empty(self._items, np.float32)
        self.own, self.other = (np.empty_like(self.shared) for _ in range(2))
        for pool in (self.shared, self.own, self.other):
            pool[...] = 0  # so that all pages exist
        self._cut: dict[tuple[int, int, int], Array] = {}  # so that no contender's time includes slicing

    def turns(self, items: int) -> int:
        """The number of arrays of this many items in a pool."""
        return max(1, self._items // items)

    def of(self, pool: Array, items: int, k: int, cold: bool) -> Array:
        """The array of this many items for round k; if cold, the whole pool has been used since it was last touched."""
        turn = k % self.turns(items) if cold else 0
        found = self._cut.get((id(pool), items, turn))
        if found is None:
            found = self._cut[id(pool), items, turn] = pool[turn * items : (turn + 1) * items]
        return found


def lane_of(comm: Communicator) -> Lane:
    """The lane of the ranks of a node, which meet in shared memory."""

    def largest(x: Array) -> Array:
        all_reduce(x, comm, "max", "ring")
        return x

    return Lane(comm.peers().meet, largest)


def contenders(
    comm: Communicator, operation: str, names: Sequence[str], items: int, arrays: Arrays, cold: bool
) -> dict[str, Callable[[int], Any]]:
    """simdist's contenders, by algorithm: those without messages on arrays in shared memory and, under another name,
    in private memory; those with messages in private memory, whose larger pages suit them better.

    Args:
        items: of the whole array; for all_to_all a multiple of the number of ranks.
    """

    def turn(name: str, pool: Array) -> Callable[[int], Any]:
        def x(k: int) -> Array:
            return arrays.of(pool, items, k, cold)

        return _call(comm, operation, name, x, lambda k: arrays.of(arrays.other, items, k, cold))

    in_memory = [name for name in names if name == "auto" or not find(operation, name).by_messages]
    found = {name: turn(name, arrays.shared if name in in_memory else arrays.own) for name in names}
    return found | {name + OWN: turn(name, arrays.own) for name in in_memory}


def _call(
    comm: Communicator, operation: str, name: str, x: Callable[[int], Array], y: Callable[[int], Array]
) -> Callable[[int], Any]:
    """Calls a collective in round k, on x(k) and, if it takes an array for the result, y(k)."""
    run = getattr(collectives, operation)

    def mine(k: int) -> Array:
        whole = x(k)
        return whole[slices(len(whole), comm.size)[comm.rank]]

    match operation:
        case "all_gather":
            return lambda k: run(mine(k), comm, name, out=x(k))
        case "all_to_all":
            return lambda k: run(x(k).reshape(comm.size, -1), comm, name, out=y(k).reshape(comm.size, -1))
        case "gather":
            return lambda k: run(mine(k), comm, algorithm=name)
        case "scatter":
            return lambda k: run(x(k) if comm.rank == 0 else None, comm, algorithm=name)
    return lambda k: run(x(k), comm, algorithm=name)
