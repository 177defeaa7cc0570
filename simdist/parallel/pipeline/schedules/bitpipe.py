"""BitPipe: Chimera with halves of stages: two pipelines in opposite directions, each of which goes there and back.

p  ranks     m  micro-batches     s  a half of a stage, from 0, of 2p

Rank r has halves r and 2p-1-r of the pipeline that begins on rank 0 (a V), and p-1-r and p+r of its mirror image. If
forward and backward each took one slot, the j-th micro-batch of a direction would be at half s

    forward  in slot  2j + s                  slot    0  1  2  3  4  5  6  7  8  9  10 11 12 13 14 15 16 17
    backward in slot  2j + 4p - 1 - s         rank 0  F0    F1 F2 F2 F3 F3 F0 B0 F1 B1 B2 B2 B3 B3 B0    B1
                                              rank 1     F0 F2 F1 F3 F2 F0 F3 F1 B0 B2 B1 B3 B2 B0 B3 B1
for the first p/2 of each direction; the next p/2 begin 4p slots later. As p is even, slots
of the two directions on a rank that are both even, or both odd, are p apart for the same j, so they never coincide.
"""

from simdist.arrays import partition
from simdist.parallel.pipeline.placement import crossed
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.schedules.rows import there_and_back

__all__ = ["bitpipe"]


@named("bitpipe")
def bitpipe(stages: int, micro_batches: int) -> Schedule:
    """Half the bubble of Chimera, p - 2 slots of half a stage, for the same parameters.

    The outermost ranks keep (3p + 2)/4 micro-batches, the innermost p. The first half of the micro-batches, one more if
    m is odd, begins on rank 0, the others on the last. Units of p are joined as in Chimera.

    Raises:
        ArgumentError: the number of stages is odd.

    Source: Wu, Chen, Yu 2024, BitPipe, arXiv 2410.19367; the order follows from Chimera's slots, as above.
    """
    p, m = stages, micro_batches
    placement = crossed(p)
    rows = []
    for r in range(p):
        ways = zip((r, p - 1 - r), partition(m, 2), strict=True)
        passes = ((range(m)[part], s) for first, part in ways for s in (first, 2 * p - 1 - first))
        rows.append(there_and_back(placement[r], passes, 2 * p, p // 2))
    return Schedule("bitpipe", rows, placement, m)
