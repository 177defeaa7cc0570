"""Slices: what pipelines gain if a text passes through them in slices of its tokens, not only in whole texts.

    p  stages     m  texts     s  slices of a text     t  the time of a slice on a stage

    forward     each slice after those before it, to whose keys and values it attends
    backward    in the opposite order

Of s equal slices a text, GPipe and 1F1B have the bubbles of m s micro-batches that each take an s-th of the time: ask
`simdist.parallel.pipeline.formulas.formula` for these. Under causal attention later slices take longer, if all are of
equally many tokens. Pipelines of simdist pass whole texts on: what is here is to calculate and to simulate.

Source: Li et al. 2021, TeraPipe, arXiv 2102.07988; Sun et al. 2024, Seq1F1B, arXiv 2406.03488.
"""

from collections.abc import Sequence

from simdist.errors import ArgumentError, as_declared, require_least
from simdist.parallel.pipeline.action import Action, Backward
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.rows import alternate, forwards

__all__ = ["seq1f1b", "terapipe_s"]


@as_declared
def terapipe_s(slices_s: Sequence[float], stages: int) -> float:
    """Σ t + (p-1) max t: how long it takes until all slices have passed through equal stages, one after the other.

    Args:
        slices_s: t of each slice, forward, or forward and backward, whose sum is then that of both.
        stages: p.

    Raises:
        ArgumentError: there is no slice or stage, or a time is below 0.
    """
    require_least("stages", stages, 1)
    for i, seconds in enumerate(slices_s):
        require_least(f"slices_s[{i}]", seconds, 0)
    times_s = [float(seconds) for seconds in slices_s]  # NumPy's, too
    if not times_s:
        raise ArgumentError("slices_s is empty; needs at least one time")
    return sum(times_s) + (stages - 1) * max(times_s)


@as_declared
def seq1f1b(stages: int, texts: int, slices: int) -> Schedule:
    """1F1B of slices: rank r keeps at most p-r + s-1 of them. Micro-batch i is slice i mod s of text i // s.

    The last rank can begin backwards when it has all of a text. So the first one keeps (p+s-1)/s texts, where 1F1B has
    p; the bubble of equal slices is (p-1)(F+B+W)/s.

        rank 0    F0 F1 F2 B1 F3 B0 …        two stages, two slices a text
        rank 1    F0 F1 B1 F2 B0 F3 …

        simulate(seq1f1b(4, 8, slices=4), Times(1, 1, 1)).bubble        # 9, of times of a slice

    Raises:
        ArgumentError: a number is less than 1.
    """
    for name, number in (("stages", stages), ("texts", texts), ("slices", slices)):
        require_least(name, number, 1)
    back: list[list[Action]] = [[Backward(t * slices + i)] for t in range(texts) for i in reversed(range(slices))]
    row = forwards(texts * slices)
    return Schedule("seq1f1b", [alternate(stages - r + slices - 2, row, back) for r in range(stages)])
