"""DualPipe: micro-batches enter at both ends, so that nearly every forward overlaps with a backward, and each hides
the messages of the other.

    p  ranks     n  micro-batches per direction     h  ranks of a half     k  distance from its outer end

A rank has two chunks, 0 and 1. In DualPipe these are stages of two copies of the model, which run down and up the
ranks; rank p-1-r mirrors rank r, with the micro-batches of the other direction. In DualPipeV they are the two stages
of a V, as if DualPipe were folded in the middle: half as many ranks, and one copy.

    1  F⁰                × 2(h-k-1)      4  F⁰&B¹ F¹&B⁰       × n-2h+k+1     7  W I⁰     × h-k-1
    2  F⁰ F¹             × k+1           5  B¹ F¹&B⁰          × h-k-1        8  W        × k+1
    3  I¹ W¹ F¹          × h-k-1         6  B¹ B⁰             × k+1, the second half of these in halves

Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.2.1 and figure 5; steps 1 to 8 and
DualPipeV follow their code, github.com/deepseek-ai/DualPipe.
"""

from simdist.parallel.pipeline.placement import bidirectional, v_shape
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.schedules.rows import numbered

__all__ = ["dualpipe", "dualpipe_v"]


@named("dualpipe")
def dualpipe(stages: int, micro_batches: int) -> Schedule:
    """Both directions at once: twice the parameters, p + 1 micro-batches kept on every rank.

    The first half of the micro-batches, one more if m is odd, goes down. The paper needs m even and at least 2p; for
    other m, missing micro-batches are left out of its rows.

    Raises:
        ArgumentError: the number of stages is odd.
    """
    p, m = stages, micro_batches
    placement, down, up = bidirectional(p), range((m + 1) // 2), range((m + 1) // 2, m)
    rows = []
    for r in range(p):
        steps = _steps(p // 2, min(r, p - 1 - r), max(len(down), p))
        rows.append(numbered(steps, (down, up) if r < p // 2 else (up, down)))
    return Schedule("dualpipe", rows, placement, m)


@named("dualpipe-v")
def dualpipe_v(stages: int, micro_batches: int) -> Schedule:
    """DualPipe folded into a V. The published code needs m of at least 2p; missing micro-batches are left out."""
    p, m = stages, micro_batches
    rows = [numbered(_steps(p, r, max(m, 2 * p)), (range(m), range(m))) for r in range(p)]
    return Schedule("dualpipe-v", rows, v_shape(p), m)


def _steps(h: int, k: int, n: int) -> list[tuple[str, int]]:
    """Steps 1 to 8 above, as of `numbered`; n is at least 2h."""
    # In step 4 the inner rank begins without a pair, so that the forward's output is ready sooner.
    first = "F0 B1 F1&B0" if k == h - 1 else "F0&B1 F1&B0"
    step_6 = " ".join(f"{'B' if i <= k else 'I'}{(i + 1) % 2}" for i in range(2 * (k + 1)))
    return [
        ("F0", 2 * (h - k - 1)),
        ("F0 F1", k + 1),
        ("I1 W F1", h - k - 1),
        (first, 1),
        ("F0&B1 F1&B0", n - 2 * h + k),
        ("B1 F1&B0", h - k - 1),
        (step_6, 1),
        ("W I0", h - k - 1),
        ("W", k + 1),
    ]
