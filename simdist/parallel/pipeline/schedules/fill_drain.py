"""Fill and drain: all forwards before all backwards, or, naively, one micro-batch after the other."""

from simdist.parallel.pipeline.action import Action, Backward, Forward
from simdist.parallel.pipeline.placement import looped
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named

__all__ = ["breadth_first", "gpipe", "naive"]


@named("naive")
def naive(stages: int, micro_batches: int) -> Schedule:
    """One micro-batch in the pipeline at a time: one rank works while all others wait."""
    row = [action for i in range(micro_batches) for action in (Forward(i), Backward(i))]
    return Schedule("naive", [row] * stages)


@named("gpipe")
def gpipe(stages: int, micro_batches: int) -> Schedule:
    """All forwards, then all backwards, the newest first: every micro-batch is kept at once.

    Source: Huang et al. 2019, GPipe, arXiv 1811.06965, section 2.2 and figure 2c.
    """
    row: list[Action] = [Forward(i) for i in range(micro_batches)]
    row += [Backward(i) for i in reversed(range(micro_batches))]
    return Schedule("gpipe", [row] * stages)


@named("breadth-first")
def breadth_first(stages: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """A rank has several stages, and runs all micro-batches on one before the next. With sharded data parallelism,
    the weights of each stage are then gathered, and its gradients reduced, only once.

    Source: Lamy-Poirier 2023, Breadth-First Pipeline Parallelism, arXiv 2211.05953.
    """
    row: list[Action] = [Forward(i, chunk) for chunk in range(chunks) for i in range(micro_batches)]
    row += [Backward(i, chunk) for chunk in reversed(range(chunks)) for i in range(micro_batches)]
    return Schedule("breadth-first", [row] * stages, looped(stages, chunks))
