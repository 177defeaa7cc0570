"""Zero bubble: backward in halves. Other stages only wait for the gradient of the input, I; the gradients of the
weights, W, fill what would be bubbles.

    p  stages     m  micro-batches     r  this rank, from 0

Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241. The paper writes B for I.
"""

from simdist.parallel.pipeline.placement import v_shape
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.schedules.rows import alternate, forwards, numbered, split

__all__ = ["zb_h1", "zb_h2", "zb_v"]


@named("zb-h1")
def zb_h1(stages: int, micro_batches: int) -> Schedule:
    """1F1B with W r micro-batches behind I: a third of the bubble where TF = TB = TW, at 1F1B's memory (section 2)."""
    p, m = stages, micro_batches
    return Schedule("zb-h1", [alternate(p - 1 - r, forwards(m), split(m, r)) for r in range(p)])


@named("zb-h2")
def zb_h2(stages: int, micro_batches: int) -> Schedule:
    """Twice the warm-up and twice the lag: no bubble where TF = TB = TW, at twice the memory (section 2)."""
    p, m = stages, micro_batches
    return Schedule("zb-h2", [alternate(2 * (p - 1 - r), forwards(m), split(m, 2 * r)) for r in range(p)])


@named("zb-v")
def zb_v(stages: int, micro_batches: int) -> Schedule:
    """Two chunks a rank, in a V: no bubble where TF = TB = TW, all ranks at the memory of 1F1B's first (section 6).

    The loss is on rank 0, so backward starts where forward ends. F⁰ is of chunk 0, F¹ of chunk 1:

        rank 0    F⁰ × 2p-1                F¹I¹W¹ × p       F⁰I⁰W⁰F¹I¹W¹ …    I⁰W⁰ × p
        rank r    F⁰ × 2(p-r)-1  F¹F⁰ × r  F¹I¹W¹ × p-r     F⁰I⁰W⁰F¹I¹W¹ …    I⁰I¹ × r  I⁰W⁰ × p-r, and W's

    The warm-up takes 2p-1 micro-batches; with fewer, missing ones are left out.
    """
    p, m = stages, micro_batches
    rows = [numbered(_v_steps(p, r, max(m, 2 * p - 1)), (range(m), range(m))) for r in range(p)]
    return Schedule("zb-v", rows, v_shape(p), m)


def _v_steps(p: int, r: int, m: int) -> list[tuple[str, int]]:
    """The steps of rank r, as of `numbered`; m is at least 2p-1."""
    return [
        ("F0", 2 * (p - r) - 1),
        ("F1 F0", r),
        ("F1 I1 W1", p - r),
        ("F0 I0 W0 F1 I1 W1", m - 2 * p + r + 1),
        ("I0 W0 F1 I1 W1", p - r - 1),
        ("I0 I1", r),
        ("I0 W0", p - r),
        ("W1", r),
        ("W0", r),
    ]
