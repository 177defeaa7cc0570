"""GEMS: two copies of the model that take turns, so that hardly two micro-batches are ever under way.

p  ranks, each with a stage of both copies     m  micro-batches

A micro-batch follows the backward of the one before it, which leaves the pipeline at the end where this one enters:

    slot    0  1  2  3  4  5  6  7  8  9  10 11 12
    rank 0  F0                   B0 F1 B1                      F0 goes down, B0 up and F1 behind it,
    rank 1     F0             B0 F1       B1                   B1 down, and so on
    rank 2        F0       B0 F1             B1
    rank 3           F0 B0 F1                   B1
"""

from simdist.parallel.pipeline.action import Backward, Forward
from simdist.parallel.pipeline.placement import bidirectional, stage_of
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named

__all__ = ["gems"]


@named("gems")
def gems(stages: int, micro_batches: int) -> Schedule:
    """The activations of one micro-batch at a time, for twice the parameters; all but 1/p of the forwards are hidden.

    Even micro-batches go down the ranks and odd ones up. If a backward takes twice as long as a forward, the bubble is
    nearly (p - 1)/(p + 1/2) of the whole for many micro-batches, and no less for few.

    Raises:
        ArgumentError: the number of stages is odd.

    Source: Jain et al. 2020, GEMS, SC20, as Li and Hoefler 2021, arXiv 2107.06925, describe it.
    """
    p = stages
    placement = bidirectional(p)
    rows = []
    for r in range(p):
        chunks = [placement[r].index(stage_of(r, p, way, 2)) for way in (0, 1)]
        rows.append([kind(i, chunks[i % 2]) for i in range(micro_batches) for kind in (Forward, Backward)])
    return Schedule("gems", rows, placement, micro_batches)
