"""PipeDream: 1F1B without a flush. A stage updates its weights while micro-batches that used the old ones are in
flight, so it keeps several versions: see `simdist.parallel.pipeline.weights`, with the papers, and for the formulas
`PipeDream`.
"""

from dataclasses import replace

from simdist.errors import ArgumentError
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.one_f_one_b import one_f_one_b
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.weights import Weights

__all__ = ["pipedream", "pipedream_2bw", "pipedream_vertical_sync"]


@named("pipedream")
def pipedream(stages: int, micro_batches: int) -> Schedule:
    """An update after every backward; on each stage, a micro-batch's forward and backward use the same version."""
    return replace(one_f_one_b(stages, micro_batches), name="pipedream", weights=Weights("stashing", 1))


@named("pipedream-vertical-sync")
def pipedream_vertical_sync(stages: int, micro_batches: int) -> Schedule:
    """An update after every backward; a micro-batch uses the same version on all stages."""
    return replace(
        one_f_one_b(stages, micro_batches), name="pipedream-vertical-sync", weights=Weights("vertical sync", 1)
    )


@named("pipedream-2bw")
def pipedream_2bw(stages: int, micro_batches: int, group: int = 0) -> Schedule:
    """An update after every group of micro-batches; each group uses the version before the newest, so two are kept:
    SGD with gradients one step late.

    Args:
        group: micro-batches per update, at least the number of stages, which is the default: when a group enters, the
            last but one must have left.

    Raises:
        ArgumentError: the group has fewer micro-batches than there are stages.

    Source: Narayanan et al. 2021, arXiv 2006.09503, section 3.1.
    """
    group = group or stages
    if group < stages:
        raise ArgumentError(f"pipedream-2bw with groups of {group} on {stages} stages; needs at least {stages}")
    return replace(one_f_one_b(stages, micro_batches), name="pipedream-2bw", weights=Weights("2bw", group))
