"""Split: a row of layers cut into stages, so that the most costly stage costs as little as possible.

costs     3  1  1  1  4  2  2          3 stages:  3 1 1 | 1 4 | 2 2      the most costly takes 5, the least possible
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf

from simdist.errors import ArgumentError, require_least, require_whole

__all__ = ["split"]


def split(costs: Sequence[float], stages: int) -> list[slice]:
    """The layers of each stage, at least one: the cut whose most costly stage costs the least, and of several such the
    most even one (with the least sum of squares).

    Args:
        costs: of the layers, in order, at least 0.
        stages: the number of stages, S.

    Raises:
        ArgumentError: there are fewer layers than stages, or a cost is negative.

    Cost: for n layers, time in S n².
    """
    n = len(costs)
    require_whole("stages", stages, 1)
    for i, cost in enumerate(costs):
        require_least(f"costs[{i}]", cost, 0)
    if stages > n:
        raise ArgumentError(f"{n} layers in {stages} stages; needs at least 1 stage, and a layer for each")
    ends = [0.0, *accumulate(costs)]
    limit = _cuts(ends, stages, lambda cost, rest: max(cost, rest))[0]
    within = limit * (1 + 1e-12)  # allows for rounding of equal sums
    bounds = _cuts(ends, stages, lambda cost, rest: rest + cost**2 if cost <= within else inf)[1]
    return [slice(a, b) for a, b in zip([0, *bounds], [*bounds, n], strict=True)]


def _cuts(ends: Sequence[float], stages: int, joined: Callable[[float, float], float]) -> tuple[float, list[int]]:
    """The least value of all cuts, and where to cut for it.

    Args:
        ends: the cost of the first 0, 1, … n layers.
        joined: the value of several stages and one more, given its cost and their value.
    """
    n = len(ends) - 1
    # best[j]: for the first j layers, in k stages
    best: list[tuple[float, list[int]]] = [(joined(ends[j], 0.0), []) for j in range(n + 1)]
    for k in range(2, stages + 1):
        ways, best = best, []
        for j in range(n + 1):
            value, cut = min(((joined(ends[j] - ends[i], ways[i][0]), i) for i in range(k - 1, j)), default=(inf, 0))
            best.append((value, [*ways[cut][1], cut]))
    return best[n]
