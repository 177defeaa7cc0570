"""Communicators: those that a run has outside of its layers, and the collectives on each."""

from collections.abc import Iterator
from typing import NamedTuple

from simdist.planning.group import Group
from simdist.planning.job import Job
from simdist.planning.updating import updating
from simdist.training.methods import CUTTING

__all__ = ["Called", "communicators"]


class Called(NamedTuple):
    """A collective.

    Attributes:
        name: of its communicator: the same where the communicator and the stream are.
        group: its ranks.
        operation, num_bytes: "all_reduce", and the size of the whole array.
    """

    name: str
    group: Group
    operation: str
    num_bytes: int


def communicators(job: Job, rank: int) -> Iterator[Called]:
    """The collectives of a pipeline rank in training, each with the name of its communicator.

    Where no model is cut, the ranks of dp are all ranks; where stages are not cut further, those of pp have one model.
    Gradients are reduced on a second stream during backward, and by ZeRO always; in stage 3 weights are gathered there.
    Sums over other axes, and of copies, have communicators apart from those within layers.
    """
    part, zero, everything = job.parts[rank], job.zero_stage, ("pp", "copies", "holders", "ep", "sp", "tp")
    cut = job.pipelined or job.config.experts or any(job.sizes[axis] > 1 for axis in CUTTING)
    dp = "dp" if cut else "all"
    one_model = len(job.copies.ranks) == 1
    holders = dp if one_model else "holders"
    gathering = "holders, beside" if zero == 3 else holders
    if not zero:  # the first weights
        yield Called(dp, job.copies, "broadcast", part.size * job.itemsize)
    for size in {*job.reduced_bytes(part)}:
        if zero:
            yield Called("holders, beside", job.holders, "reduce_scatter", size)
            yield Called("copies, beside", job.copies, "all_reduce", size // len(job.holders.ranks))
            yield Called(gathering, job.holders, "all_gather", size)
        else:
            yield Called(dp if job.reduces_late else "dp, beside", job.copies, "all_reduce", size)
    yield from (Called(holders, job.holders, "all_gather", size) for size in updating(job, part).gathered_bytes)
    yield from (Called(f"sums of {group.ranks}", group, "all_reduce", size) for group, size in job.summed(part))
    for ranks, group, size in job.held_twice:
        if rank in ranks:
            yield Called(f"copies on {ranks}", group, "all_reduce", size)
    if job.pipelined:  # the loss
        yield Called("pp", job.group("pp"), "all_reduce", 8)
    if job.recipe.precision.scaled:  # whether all gradients are finite
        yield Called("all", job.group(*everything), "all_reduce", 1)
    if job.recipe.max_norm is not None or job.recipe.sums_norms:  # norms
        model = job.group(*(axis for axis in everything if axis != "copies"))
        alone = job.pipelined and len(model.ranks) == len(job.parts)
        yield Called("all" if zero and one_model else "pp" if alone else "model", model, "all_reduce", 16)
