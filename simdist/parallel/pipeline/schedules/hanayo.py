"""Hanayo: waves. Micro-batches go down the ranks and up again, several times, so that they turn without a message.

p  ranks     v  chunks a rank, two for each wave     s  a chunk of the model, from 0, of S = vp

Rank r has chunks r and 2p-1-r of the first wave, and so on. If forward and backward each took one slot, the j-th
micro-batch would be at chunk s

    forward  in slot  2j + s                  slot    0  1  2  3  4  5  6  7  8  9  10 11 12
    backward in slot  2j + 2S - 1 - s         rank 0  F0    F1 F0 B0 F1 B1 B0    B1             one wave
                                              rank 1     F0 F0 F1 F1 B0 B0 B1 B1
for the first p; the next p begin 2S slots later. Modulo 2p these are r and 2p-1-r plus 2j: all 2p different, so that
slots never coincide, and with any number of units in a row no rank waits between them.
"""

from simdist.errors import ArgumentError
from simdist.parallel.pipeline.placement import v_shape
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.schedules.rows import there_and_back

__all__ = ["hanayo"]


@named("hanayo")
def hanayo(stages: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """About Chimera's bubble with one wave, half of that with two, though each weight is held once: 2(p-1)/v slots of a
    whole stage.

    Rank r keeps p - (p-1-r)/v micro-batches. If m exceeds p, units of p follow each other as in Chimera, with bubbles
    in between if backwards take longer than forwards.

    Args:
        chunks: v, even: two for each wave.

    Raises:
        ArgumentError: chunks is odd.

    Source: Liu, Cheng, Zhou, You 2023, Hanayo, SC23, arXiv 2308.15762; order, bubble and memory follow from the slots.
    """
    p, m, v = stages, micro_batches, chunks
    if v % 2:
        raise ArgumentError(f"hanayo with chunks={v}; needs an even number, two for each wave")
    placement = v_shape(p, v // 2)
    rows = [there_and_back(own, ((range(m), s) for s in own), v * p, p) for own in placement]
    return Schedule("hanayo", rows, placement, m)
