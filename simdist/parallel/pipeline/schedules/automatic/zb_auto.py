"""ZB-auto: a zero-bubble schedule for given times and memory, by search.

    p  stages     m  micro-batches     M_B, M_W  the memory of a micro-batch from F to B, and from B to W

The cost of a schedule is the longest span of a stage, from its first F to its last W. This assumes that stages do not
wait for each other at the end of a step: they check the global conditions of an update after it, and roll it back if
these fail (section 4 of the paper).

Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 3.1: first F's, as many as memory
allows; then F and B in turn, and W's where there would be a bubble or memory is full; of several variants the best is
kept. The variants here, and their order, are not the paper's.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, inf

from simdist.parallel.pipeline.action import Action
from simdist.parallel.pipeline.memory import Memory, peak
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.automatic.problem import Problem, problem
from simdist.parallel.pipeline.schedules.automatic.search import search
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.schedules.rows import numbered
from simdist.parallel.pipeline.schedules.zero_bubble import zb_h1, zb_h2
from simdist.parallel.pipeline.simulate import simulate
from simdist.parallel.pipeline.times import Times

__all__ = ["ZB_MEMORY", "lower_bound", "zb_auto"]

ZB_MEMORY = Memory(1.0, 0.5)
"""The default. By `zero_bubble_layer`, M_W is 0.37 to 0.43 of M_B in the models whose times the paper gives. If
M_W = M_B, about as without stored attention scores, no schedule within 2p M_B comes near the paper's figures: see
`lower_bound`."""


@named("zb-auto")
def zb_auto(
    stages: int,
    micro_batches: int,
    memory_limit: float | None = None,
    times: Times | None = None,
    memory: Memory | None = None,
) -> Schedule:
    """The best schedule found; with a higher limit it is never worse. The search only uses limits of one micro-batch
    plus a whole number of M_B's.

    The paper's ZB-1p is this with the limit p M_B, its ZB-2p with 2p M_B.

    Args:
        memory_limit: the most a stage may keep, in the unit of M_B and M_W; 2p M_B where not given.
        times: the same for all stages, or of each; where not given TF = TB = TW = 1, and messages take no time.
        memory: M_B and M_W, in micro-batches or bytes; ZB_MEMORY where not given.

    Raises:
        ArgumentError: no micro-batch fits into the limit, M_B is 0, or `times` has another number of stages.
    """
    times, memory = times or Times(), memory or ZB_MEMORY
    given = problem(stages, micro_batches, times, memory, memory_limit)
    best: Sequence[Sequence[Action]] = ()
    cost = inf
    for by_hand in (zb_h1(stages, micro_batches), zb_h2(stages, micro_batches)):
        most = max(peak(by_hand, rank, memory) for rank in range(stages))
        if given.fits(most) and (took := _cost(by_hand, times)) < cost:
            best, cost = by_hand.rows, took
    for limit in _limits(given):
        lower = replace(given, limit=limit)
        if best and lower.lower_bound >= cost * (1 - 1e-12):
            break  # lower limits cannot give a better schedule
        rows = [" ".join(f"{letter}0" for letter in row.replace("B", "I")) for row in search(lower).rows]
        found = Schedule("zb-auto", [numbered([(row, 1)], [range(micro_batches)]) for row in rows])
        if (took := _cost(found, times)) < cost:  # simulated, because the search ignores ports
            best, cost = found.rows, took
    return Schedule("zb-auto", best, num_micro_batches=micro_batches)


def lower_bound(
    stages: int,
    micro_batches: int,
    memory_limit: float | None = None,
    times: Times | None = None,
    memory: Memory | None = None,
) -> float:
    """A lower bound of the longest span of any stage, for all schedules, in the unit of the times.

    Args, Raises: as of `zb_auto`.
    """
    return problem(stages, micro_batches, times or Times(), memory or ZB_MEMORY, memory_limit).lower_bound


def _limits(given: Problem) -> Iterator[float]:
    """The limits to search, from the given one down: one micro-batch plus k M_B's.

    The grid does not depend on the given limit. So a higher limit searches all that a lower one does, and more memory
    is never worse. The grid is sparse where more memory no longer lowers the bound.
    """
    first, step = max(given.memory.backward, given.memory.weight), given.memory.backward

    def limit(k: int) -> float:
        return first + k * step

    def least(k: int) -> float:
        return replace(given, limit=limit(k)).lower_bound

    all_fit = ceil(given.m * first / step)
    enough = bisect_left(range(all_fit), True, key=lambda k: least(k) <= least(all_fit))
    sparse = range(enough, 2 * enough + 2, 1 + enough // 8)
    for k in [*reversed(sparse), *range(enough - 1, -1, -1)]:
        if given.fits(limit(k)):
            yield limit(k)


def _cost(schedule: Schedule, times: Times) -> float:
    return simulate(schedule, times).longest_span
