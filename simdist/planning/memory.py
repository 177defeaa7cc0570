"""Memory: the peak memory of each pipeline rank in a step, by category of the ledger."""

from collections.abc import Iterator
from typing import NamedTuple

from simdist.parallel.pipeline import Peaks, joined, peaks
from simdist.parallel.zero.formulas import kept_of
from simdist.parallel.zero.slots import Slots
from simdist.planning.group import Group
from simdist.planning.job import Job, Part
from simdist.planning.step import course

__all__ = ["RankMemory", "least_bytes", "memory"]


class RankMemory(NamedTuple):
    """The predicted memory of a pipeline rank.

    Attributes:
        peaks: the most bytes of each category, by name.
        num_bytes: the most of all at once. That is less than the sum of the peaks, because between layers most may pass
            when little is kept.
    """

    peaks: dict[str, float]
    num_bytes: float


def memory(job: Job) -> list[RankMemory]:
    """The peak bytes on each pipeline rank: see `kept` for what each stage of ZeRO divides.

    Gradients count as if all existed at once with all activations. Communication counts ZeRO's buffers for units, and
    the scratch of collectives: of the largest exchange within layers and, if it overlaps with them, the largest
    reduction, as if both were under way at once; or of the largest collective after the passes, if that is more.
    Pipelines and method dp reduce after the passes, when of the activations only the text is left.
    """
    return [_on_rank(job, rank, passes) for rank, passes in enumerate(_passes(job))]


def least_bytes(job: Job) -> float:
    """A lower bound on the memory of the fullest rank, found without going through a schedule: as if each micro-batch
    left before the next one came.
    """
    if not job.pipelined:
        return memory(job)[0].num_bytes
    alone = [max(stage.working["F"], min(stage.working["B"], stage.working["I"])) for stage in job.stages]
    each = (Peaks(0.0, 0.0, max(alone[stage] for stage in own)) for own in job.schedule.placement)
    return max(_on_rank(job, rank, passes).num_bytes for rank, passes in enumerate(each))


def _on_rank(job: Job, rank: int, passes: Peaks) -> RankMemory:
    part, zero = job.parts[rank], job.zero_stage
    pieces = job.pieces(part) if zero else []
    whole = sum(piece.room for piece in pieces) if zero else part.size
    exact = kept_of(job.recipe, zero, whole, job.own(part), Slots.shared(pieces).size)
    within, reducing, after = _scratch(job, rank)
    if job.pipelined or job.config.method == "dp":
        reducing, after = 0.0, max(reducing, after)
    most = max(within + reducing, after)
    if job.bench.cluster.one_memory:  # what ranks once took in it stays for the next step
        reducing = after = most
    peaks = {
        "parameters": exact.parameters,
        "gradients": exact.gradients,
        "optimizer state": exact.optimizer_state,
        "activations": passes.activations,
        "communication": exact.communication + most,
        "buffers": passes.buffers,
    }
    text_bytes = job.config.micro_batches * sum(job.anatomy.layers[layer].text_bytes for layer in part.layers)
    return RankMemory(peaks, exact.total + max(passes.num_bytes + reducing, text_bytes + after))


def _passes(job: Job) -> list[Peaks]:
    """What forward and backward of all micro-batches take, on each pipeline rank."""
    if job.pipelined:
        at_once = max(stage.input_bytes for stage in job.stages) <= job.bench.cluster.eager_bytes
        went = None if at_once else course(job).course
        return job.once(lambda: peaks(job.schedule, job.stages, course=went), "passes")
    whole = joined(job.anatomy.layers)
    text_bytes = whole.text_bytes * job.config.micro_batches
    during, passing, working = (
        max(most[letter] for letter in "FB")
        for most in ({k: level.during for k, level in whole.levels.items()}, whole.passing, whole.working)
    )
    return [Peaks(during + text_bytes, passing, working + text_bytes)]


def _scratch(job: Job, rank: int) -> tuple[float, float, float]:
    """The most that collectives take beside what they work on: those within layers, those of ranks of dp, and those
    after the passes.
    """
    part = job.parts[rank]
    return (
        max(job.anatomy.layers[layer].scratch_bytes for layer in part.layers),
        max((job.bench.scratch_bytes(*call) for call in _reductions(job, part)), default=0.0),
        max((job.bench.scratch_bytes(*call) for call in _sums(job, rank)), default=0.0),
    )


def _reductions(job: Job, part: Part) -> Iterator[tuple[Group, str, int]]:
    """The collectives of ranks of dp, which may overlap with the passes: among whom, which, and on how many bytes."""
    holders = len(job.holders.ranks)
    for num_bytes in {*job.reduced_bytes(part)}:
        yield job.holders, "reduce_scatter", num_bytes
        yield job.holders, "all_gather", num_bytes
        yield job.copies, "all_reduce", num_bytes // holders


def _sums(job: Job, rank: int) -> Iterator[tuple[Group, str, int]]:
    """Likewise those after the passes: of gradients of weights that ranks of other axes have, too."""
    held = [(group, num_bytes) for ranks, group, num_bytes in job.held_twice if rank in ranks]
    for group, num_bytes in [*job.summed(job.parts[rank]), *held]:
        yield group, "all_reduce", num_bytes
