"""1F1B: after a warm-up each rank alternates forwards and backwards, so that its memory does not grow.

p  stages     m  micro-batches     v  chunks a rank     r  this rank, from 0

rank 0    F0 F1 F2 F3 B0 F4 B1 …        warm-up: p-1-r forwards, one for each rank that the first
rank 1    F0 F1 F2 B0 F3 B1 …           micro-batch passes before its backward comes back
rank 2    F0 F1 B0 F2 B1 …
rank 3    F0 B0 F1 B1 …
"""

from simdist.parallel.pipeline.action import Action, Backward, Forward
from simdist.parallel.pipeline.placement import looped
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.schedules.rows import alternate, backwards, forwards, only

__all__ = ["eager_1f1b", "interleaved_1f1b", "one_f_one_b"]


@named("1f1b")
def one_f_one_b(stages: int, micro_batches: int) -> Schedule:
    """Rank r keeps at most p-r micro-batches.

    Source: Narayanan et al. 2021, arXiv 2006.09503, PipeDream-Flush; arXiv 2104.04473, section 2.2.1.
    """
    p, m = stages, micro_batches
    return Schedule("1f1b", [alternate(p - 1 - r, forwards(m), backwards(m)) for r in range(p)])


@named("eager-1f1b")
def eager_1f1b(stages: int, micro_batches: int) -> Schedule:
    """Twice the warm-up: an activation arrives a turn before it is needed, so that its transfer is hidden.

    Source: Zhuang et al. 2023, On Optimizing the Communication of Model Parallelism, arXiv 2211.05322.
    """
    p, m = stages, micro_batches
    return Schedule("eager-1f1b", [alternate(2 * (p - 1 - r), forwards(m), backwards(m)) for r in range(p)])


@named("interleaved-1f1b")
def interleaved_1f1b(stages: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """Each rank has v stages, p apart, so the pipeline fills in 1/v of the time, with v times the messages.

    Forwards take p micro-batches through chunk 0, then through chunk 1, and so on; then the next p. Backwards go
    through the chunks from last to first. The warm-up is that of 1F1B for the last chunk, p forwards for each chunk
    before it, and another p-1-r, because ranks do a backward only every other turn.

    If p does not divide m, the last group of p is incomplete (Megatron-LM refuses such an m).

    Simulated with the times measured in arXiv 2401.10241, its bubble rate is 2 to 4% above that paper's 1F1B-I.

    Source: Narayanan et al. 2021, Megatron-LM, arXiv 2104.04473, section 2.2.2 and figure 4.
    """
    p, m, v = stages, micro_batches, chunks
    all_forwards: list[Action] = []
    all_backwards: list[list[Action]] = []
    for start in range(0, m, p):
        for chunk in range(v):
            for i in range(start, start + p):
                all_forwards.append(Forward(i, chunk))
                all_backwards.append([Backward(i, v - 1 - chunk)])
    rows = []
    for r in range(p):
        warm_up = (v - 1) * p + 2 * (p - 1 - r)
        rows.append(only(m, alternate(warm_up, all_forwards, all_backwards)))
    return Schedule("interleaved-1f1b", rows, looped(p, v))
