"""Chimera: two 1F1B pipelines in opposite directions, which fill each other's bubbles.

p  ranks, each with a stage of both pipelines     m  micro-batches     s  a stage, from 0

If forward and backward each took one slot, the j-th micro-batch of a direction would be at stage s

    forward  in slot  2j + s                       slot    0  1  2  3  4  5  6  7  8  9
    backward in slot  2j + 2p - 1 - s              rank 0  F0    F1 F2 B2 F3 B3 B0    B1      F0, F1 go down
                                                   rank 1     F0 F2 F1 F3 B2 B0 B3 B1
for the first p/2 of each direction; the next          rank 2     F2 F0 F3 F1 B0 B2 B1 B3
p/2 begin 2p slots later. A rank has stage s of one    rank 3  F2    F3 F0 B0 F1 B1 B2    B3      F2, F3 go up
direction and p-1-s of the other. As p is even, their
slots never coincide.
"""

from simdist.arrays import partition
from simdist.parallel.pipeline.placement import bidirectional, stage_of
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.schedules.rows import there_and_back

__all__ = ["chimera"]


@named("chimera")
def chimera(stages: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """Less than half the bubble of 1F1B if backwards take as long as forwards, for twice the parameters.

    With more chunks there are v pipelines, v times the parameters, and a bubble of 2p/v - 2 slots: v/2 pipelines go
    down, each beginning 2p/v ranks after the one before, and v/2 go up, as their mirror images.

    The outermost of 2p/v ranks keep p - p/v + 1 micro-batches, the innermost p. The micro-batches are divided evenly
    among the pipelines, one more to the first ones. If m exceeds p, units of p are joined by the paper's direct
    concatenation, which leaves bubbles in between if backwards take longer than forwards.

    Args:
        chunks: the number of pipelines, v, each of which has a stage on every rank.

    Raises:
        ArgumentError: the number of stages is odd; or that of chunks is odd, or no divisor of it.

    Source: Li and Hoefler 2021, arXiv 2107.06925, sections 3.1, 3.5 and 3.6, tables 2 and 3.
    """
    p, m, v = stages, micro_batches, chunks
    placement = bidirectional(p, v)
    rows = []
    for r in range(p):
        passes = ((range(m)[part], stage_of(r, p, q, v)) for q, part in enumerate(partition(m, v)))
        rows.append(there_and_back(placement[r], passes, p, p // v))
    return Schedule("chimera", rows, placement, m)
