"""ZB-auto: a zero-bubble schedule for given times and memory, by search.

    p  stages     m  micro-batches     M_B, M_W  what a micro-batch takes from F to B, and from B to W

The cost of a schedule is the longest span of a stage, from its own first F to its own last W. So it is where stages
need not wait for each other at the end of a step: what they have to agree on before an update is checked after it,
and the update rolled back where it was wrong (section 4 of the paper).

Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 3.1: F's first, as many as memory
allows; then F and B in turn, W's where there would be a bubble or memory is full; several ways tried, the best kept.
What is tried here, and in which order, is our own.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, inf

from simdist.errors import ArgumentError
from simdist.parallel.pipeline.action import Action
from simdist.parallel.pipeline.memory import Memory, levels
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.automatic import bound
from simdist.parallel.pipeline.schedules.automatic.problem import Problem, problem
from simdist.parallel.pipeline.schedules.automatic.search import search
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.schedules.zero_bubble import zb_h1, zb_h2
from simdist.parallel.pipeline.simulate import simulate
from simdist.parallel.pipeline.text import LETTERS
from simdist.parallel.pipeline.times import Times

__all__ = ["ZB_MEMORY", "lower_bound", "zb_auto"]

ZB_MEMORY = Memory(1.0, 0.5)
"""What is assumed where nothing is said. By `zero_bubble_layer` M_W is from 0.37 to 0.43 of M_B in the models whose
times the paper gives. Where M_W = M_B, as where attention scores are not kept, the limit 2p M_B admits nothing near
the paper's figures: see `lower_bound`."""


@named("zb-auto")
def zb_auto(
    stages: int,
    micro_batches: int,
    memory_limit: float | None = None,
    times: Times | None = None,
    memory: Memory | None = None,
) -> Schedule:
    """The best schedule found; with more memory it is never worse. What the limit has beyond one micro-batch and a
    whole number of M_B's more is not made use of.

    ZB-1p of the paper is this with the limit p M_B, ZB-2p that with 2p M_B.

    Args:
        memory_limit: what a stage may keep at most, in the unit of M_B and M_W; 2p M_B where not given.
        times: one for all stages, or of each; where not given TF = TB = TW = 1, and messages take no time.
        memory: M_B and M_W, in micro-batches or bytes; ZB_MEMORY where not given.

    Raises:
        ArgumentError: not one micro-batch fits into the limit, or M_B is 0, or times are of another number of stages.
    """
    times, memory = times or Times(), memory or ZB_MEMORY
    given = _problem(stages, micro_batches, memory_limit, times, memory)
    best: Sequence[Sequence[Action]] = ()
    cost = inf
    for by_hand in (zb_h1(stages, micro_batches), zb_h2(stages, micro_batches)):
        if given.fits(_peak(by_hand, memory)) and _cost(by_hand, times) < cost:
            best, cost = by_hand.rows, _cost(by_hand, times)
    for limit in _limits(given):
        lower = replace(given, limit=limit)
        if best and bound.lower_bound(lower) >= cost * (1 - 1e-12):
            break  # with so little memory it cannot get better
        found = Schedule("zb-auto", [_actions(row) for row in search(lower).rows])
        if _cost(found, times) < cost:  # of a search that does not know of ports
            best, cost = found.rows, _cost(found, times)
    return Schedule("zb-auto", best, num_micro_batches=micro_batches)


def lower_bound(
    stages: int,
    micro_batches: int,
    memory_limit: float | None = None,
    times: Times | None = None,
    memory: Memory | None = None,
) -> float:
    """How long the longest span of a stage is at least, whatever the schedule, in the unit of the times.

    Args, Raises: as of `zb_auto`.
    """
    return bound.lower_bound(_problem(stages, micro_batches, memory_limit, times or Times(), memory or ZB_MEMORY))


def _problem(p: int, m: int, limit: float | None, times: Times, memory: Memory) -> Problem:
    limit = 2 * p * memory.backward if limit is None else limit
    if memory.backward == 0 or not limit >= max(memory.backward, memory.weight):
        raise ArgumentError(
            f"zb-auto within {limit} of memory, where M_B is {memory.backward} and M_W is {memory.weight}: needs a "
            "limit that holds one micro-batch, and M_B above 0"
        )
    return problem(p, m, times, memory, float(limit))


def _limits(given: Problem) -> Iterator[float]:
    """The limits that are searched, from that given down: one micro-batch, and so many M_B's more.

    They do not depend on the limit that is given. So what is found within a limit is among what is found within a
    higher one, and more memory is never worse. There are fewer of them where the bound has come to its least.
    """
    first, step = max(given.memory.backward, given.memory.weight), given.memory.backward

    def limit(k: int) -> float:
        return first + k * step

    def least(k: int) -> float:
        return bound.lower_bound(replace(given, limit=limit(k)))

    all_fit = ceil(given.m * first / step)
    enough = bisect_left(range(all_fit), True, key=lambda k: least(k) <= least(all_fit))
    sparse = range(enough, 2 * enough + 2, 1 + enough // 8)
    for k in [*reversed(sparse), *range(enough - 1, -1, -1)]:
        if given.fits(limit(k)):
            yield limit(k)


def _actions(row: str) -> list[Action]:
    """Letters as actions, B as BackwardInput; a letter's n-th is that of micro-batch n."""
    done: Counter[str] = Counter()
    actions: list[Action] = []
    for letter in row:
        actions.append(LETTERS["I" if letter == "B" else letter](done[letter]))
        done[letter] += 1
    return actions


def _peak(schedule: Schedule, memory: Memory) -> float:
    return max(level.during for rank in range(schedule.num_ranks) for level in levels(schedule, rank, memory))


def _cost(schedule: Schedule, times: Times) -> float:
    return simulate(schedule, times).longest_span
