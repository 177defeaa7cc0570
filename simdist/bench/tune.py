"""Tune: find the fastest algorithm of each collective on this machine, for `auto` to use."""

from collections.abc import Sequence
from typing import Any

from simdist.bench.race import OWN, Arrays, contenders, lane_of, race
from simdist.bench.trial import require_right
from simdist.cluster import Pick, Tuned
from simdist.collectives import algorithms
from simdist.collectives.registry import find
from simdist.comm import Communicator
from simdist.launch import run
from simdist.trace.kind import COLLECTIVES

__all__ = ["SIZES", "tune"]

SIZES = tuple(4**k * 1024 for k in range(8))
"""1 KiB to 16 MiB: beyond that memory bandwidth dominates, and the fastest does not change."""

_BUDGET_S = 0.3  # for each collective at each size
_ENOUGH = 1.05  # an algorithm must be faster by this factor to be preferred to `direct`


def tune(ranks: Sequence[int], sizes: Sequence[int] = SIZES) -> Tuned:
    """Measure all algorithms of all collectives that have more than one, in a job of each number of ranks.

    Args:
        ranks: 2 or more, all on this machine.
        sizes: bytes of the whole array.
    """
    picks: dict[tuple[str, int], tuple[Pick, ...]] = {}
    for p in ranks:
        measured = run(_measure, p, world="mpi", args=(sizes,), record=False, check=False, timeout_s=120)
        for operation, medians in measured.results[0].items():
            picks[operation, p] = tuple(Pick(size, *_fastest(operation, of)) for size, of in medians.items())
    return Tuned(picks)


def _measure(comm: Communicator, sizes: Sequence[int]) -> dict[str, dict[int, dict[str, float]]]:
    """The median of each contender, by operation and size."""
    arrays, lane = Arrays(comm.empty, max(sizes)), lane_of(comm)
    found: dict[str, dict[int, Any]] = {}
    for operation in COLLECTIVES:
        names = algorithms(operation)
        if len(names) == 1:
            continue
        require_right(operation, names, comm)
        found[operation] = {}
        for size in sizes:
            items = -(-size // (4 * comm.size)) * comm.size
            calls = contenders(comm, operation, names, items, arrays, cold=False)
            found[operation][size] = {name: times.median for name, times in race(calls, lane, _BUDGET_S).items()}
    return found


def _fastest(operation: str, medians: dict[str, float]) -> tuple[str, str]:
    """The names for arrays in shared memory, and in private memory."""
    by_messages = [name for name in medians if not name.endswith(OWN) and find(operation, name).by_messages]
    best = min(by_messages, key=medians.__getitem__)

    def pick(direct: str) -> str:
        better = direct in medians and medians[direct] <= _ENOUGH * medians[best]
        return "direct" if better else best

    return pick("direct"), pick("direct" + OWN)
