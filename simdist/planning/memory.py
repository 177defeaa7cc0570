"""Memory: the peak memory of each pipeline rank in a step, by category of the ledger."""

from collections import Counter
from itertools import accumulate
from operator import add
from typing import NamedTuple

from simdist.parallel.pipeline import Peaks, joined, peaks
from simdist.parallel.zero.formulas import kept_of
from simdist.parallel.zero.slots import Slots
from simdist.planning.communicators import communicators
from simdist.planning.job import Job, Part
from simdist.planning.step import course, starts_s
from simdist.planning.updating import updating

__all__ = ["RankMemory", "least_bytes", "memory"]


class RankMemory(NamedTuple):
    """The predicted memory of a pipeline rank.

    Attributes:
        peaks: the most bytes of each category, by name.
        num_bytes: the most at any one time: less than the sum of the peaks, because what passes between layers may be
            most when little is kept.
    """

    peaks: dict[str, float]
    num_bytes: float


def memory(job: Job) -> list[RankMemory]:
    """The peak bytes on each pipeline rank: see `kept` for what each stage of ZeRO divides.

    Gradients count as if all existed at once with all activations. Communication counts ZeRO's buffers for units, and
    the scratch of collectives beside the most that passes hold while it may be under way:

        within a layer           that layer
        a gather of weights      the passes: with ZeRO stage 3, else after them
        a reduction              backward through the layers before those whose gradients it reduces; with ZeRO stage 2
                                 also the next micro-batch, if there is one; in pipelines with stage 2 or 3 all
                                 passes; in others, and by method dp, after them
        after the passes         the text

    An execution may hold less: a virtual rank's second stream gets its turn only when the first waits.
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
    state_bytes = updating(job, part).state_bytes
    exact = kept_of(job.recipe, zero, whole, job.own(part), state_bytes, Slots.shared(pieces).size)
    times = _times(job, rank, passes)
    stays = _stays_bytes(job, rank)
    peaks = {
        "parameters": exact.parameters,
        "gradients": exact.gradients,
        "optimizer state": exact.optimizer_state,
        "activations": passes.activations,
        "communication": exact.communication + stays + max(time.within + time.beside for time in times),
        "buffers": passes.buffers,
    }
    return RankMemory(peaks, exact.total + stays + max(time.held + time.beside for time in times))


class _Time(NamedTuple):
    """A part of a step.

    Attributes:
        held: the most bytes that the passes hold in it, what collectives within layers take included.
        within: the most that these take.
        beside: the most that other collectives take that may be under way.
    """

    held: float
    within: float
    beside: float


def _times(job: Job, rank: int, passes: Peaks) -> list[_Time]:
    part, zero, count = job.parts[rank], job.zero_stage, job.config.micro_batches
    layers = [job.anatomy.layers[layer] for layer in part.layers]
    text_bytes = count * sum(layer.text_bytes for layer in layers)
    gathering, reducing = _scratch(job, part)
    # Gradients of weights that ranks of other axes have, too, are summed after the passes.
    sums = [*job.summed(part), *((group, size) for ranks, group, size in job.held_twice if rank in ranks)]
    after = [job.bench.scratch(group, "all_reduce", size).passing for group, size in sums]
    gathered = updating(job, part).gathered_bytes
    after += [job.bench.scratch(job.holders, "all_gather", size).passing for size in gathered]
    # With stage 3 the next micro-batch begins with a gather, which waits for all reductions.
    during = max([0.0, *([gathering] if zero == 3 else reducing if zero == 2 and count > 1 else [])])
    if job.pipelined and zero > 1:  # another micro-batch may be under way
        during = max(during, *reducing, 0.0)
    times = [
        _Time(passes.num_bytes, max(layer.scratch_bytes for layer in layers), during),
        _Time(text_bytes, 0.0, max([gathering, *reducing, *after])),
    ]
    if job.pipelined or job.config.method == "dp":
        return times
    with_weights = [k for k, weights in enumerate(job.anatomy.weights) if weights]
    kept = [0.0, *accumulate(layer.levels["F"].after for layer in layers)]
    for piece, scratch in zip(job.pieces(part), reducing, strict=True):
        if before := layers[: with_weights[piece.first]]:
            held = text_bytes + max(map(add, kept, (layer.working["B"] for layer in before)))
            times.append(_Time(held, max(layer.scratch_bytes for layer in before), scratch))
    return times


def _passes(job: Job) -> list[Peaks]:
    """What forward and backward of all micro-batches take, on each pipeline rank."""
    if job.pipelined:
        if max(stage.input_bytes for stage in job.stages) <= job.bench.cluster.eager_bytes:
            return job.once(lambda: peaks(job.schedule, job.stages), "passes")
        first, later = (_passes_from(job, starts) for starts in ((), starts_s(job)))
        return [Peaks(*map(max, *each)) for each in zip(first, later, strict=True)]
    whole = joined(job.anatomy.layers)
    text_bytes = whole.text_bytes * job.config.micro_batches
    during, passing, working = (
        max(most[letter] for letter in "FB")
        for most in ({k: level.during for k, level in whole.levels.items()}, whole.passing, whole.working)
    )
    return [Peaks(during + text_bytes, passing, working + text_bytes)]


def _passes_from(job: Job, starts_s: tuple[float, ...]) -> list[Peaks]:
    """The same in a pipeline whose ranks begin at these times, where messages stay until they are expected."""
    return job.once(lambda: peaks(job.schedule, job.stages, course=course(job, starts_s).course), "passes", *starts_s)


def _stays_bytes(job: Job, rank: int) -> int:
    """What a rank's communicators keep of memory that ranks share, where they have one."""
    if not job.bench.cluster.one_memory:
        return 0
    stays = Counter[str]()
    for name, group, operation, num_bytes in communicators(job, rank):
        stays[name] = max(stays[name], job.bench.scratch(group, operation, num_bytes).stays)
    return job.anatomy.shared_bytes + stays.total()


def _scratch(job: Job, part: Part) -> tuple[float, list[float]]:
    """The most that collectives of ranks of dp take: one that gathers weights, and each that reduces gradients."""
    taken, sizes, holders = job.bench.scratch, job.reduced_bytes(part), len(job.holders.ranks)
    reducing = {
        size: max(
            taken(job.holders, "reduce_scatter", size).passing,
            taken(job.copies, "all_reduce", size // holders).passing,
        )
        for size in set(sizes)
    }
    gathering = max((taken(job.holders, "all_gather", size).passing for size in reducing), default=0.0)
    return gathering, [reducing[size] for size in sizes]
