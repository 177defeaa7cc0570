"""Memory: the peak memory of each pipeline rank in a step, by category of the ledger."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from simdist.parallel.pipeline import joined, peaks
from simdist.parallel.pipeline.play import Course
from simdist.parallel.zero.formulas import kept_of
from simdist.parallel.zero.slots import Slots
from simdist.planning.communicators import communicators
from simdist.planning.job import Job
from simdist.planning.overlap import Streams
from simdist.planning.stages import Beside, gather_bytes, reduce_bytes, travel_with_bytes, unpiped
from simdist.planning.step import simulated, starts_s
from simdist.planning.updating import updating

__all__ = ["RankMemory", "least_bytes", "memory", "ordered_bytes"]


class RankMemory(NamedTuple):
    """The predicted memory of a pipeline rank.

    Attributes:
        peaks: the most bytes of each category, by name.
        num_bytes: the most at any one time: less than the sum of the peaks, because what passes between layers may be
            most when little is kept.
    """

    peaks: dict[str, float]
    num_bytes: float


class _Passes(NamedTuple):
    """The most bytes that forward and backward of all micro-batches take on a rank.

    Attributes:
        activations, buffers, num_bytes: as of `Peaks`, with what is under way beside them.
        collectives: what collectives take meanwhile.
    """

    activations: float
    buffers: float
    num_bytes: float
    collectives: float


def memory(job: Job) -> list[RankMemory]:
    """The peak bytes on each pipeline rank: see `kept` for what each stage of ZeRO divides.

    Gradients count as if all existed at once with all activations. Communication counts ZeRO's buffers for units, and
    the scratch of collectives beside the most that is held while they may be under way:

        within a layer           that layer
        on a second stream       all from its begin until the main stream waits for it, or for one after it: see
                                 `Streams`; of several, the one that takes most
        after the passes         the text

    An execution holds less where the second stream is quicker.
    """
    return [_on_rank(job, rank, passes) for rank, passes in enumerate(_passes(job))]


def least_bytes(job: Job) -> float:
    """A lower bound on the memory of the fullest rank, found without going through a schedule: as if each micro-batch
    left before the next one came.
    """
    if not job.pipelined:
        return memory(job)[0].num_bytes
    alone = [max(stage.working["F"], min(stage.working["B"], stage.working["I"])) for stage in job.stages]
    each = (_Passes(0.0, 0.0, max(alone[stage] for stage in own), 0.0) for own in job.schedule.placement)
    return max(_on_rank(job, rank, passes).num_bytes for rank, passes in enumerate(each))


def ordered_bytes(job: Job) -> float:
    """A closer lower bound: along the schedule, but without times, as if messages were copied when they are sent; and
    only for the first and the last rank, one of which mostly is the fullest.
    """
    least = least_bytes(job)
    if not job.pipelined:
        return least
    ends = sorted({0, len(job.parts) - 1})
    passes = job.once(lambda: _piped(job, ends), "passes on the ends")
    return max(least, *(_on_rank(job, *each).num_bytes for each in zip(ends, passes, strict=True)))


def _on_rank(job: Job, rank: int, passes: _Passes) -> RankMemory:
    part, zero = job.parts[rank], job.zero_stage
    pieces = job.pieces(part) if zero else []
    whole = sum(piece.room for piece in pieces) if zero else part.size
    state_bytes = updating(job, part).state_bytes
    exact = kept_of(job.recipe, zero, whole, job.own(part), state_bytes, Slots.shared(pieces).size)
    stays, after = _stays_bytes(job, rank), _after_bytes(job, rank)
    text_bytes = job.config.micro_batches * sum(job.anatomy.layers[layer].text_bytes for layer in part.layers)
    by_category = {
        "parameters": exact.parameters,
        "gradients": exact.gradients,
        "optimizer state": exact.optimizer_state,
        "activations": passes.activations,
        "communication": exact.communication + stays + max(passes.collectives, after),
        "buffers": passes.buffers,
    }
    return RankMemory(by_category, exact.total + stays + max(passes.num_bytes, text_bytes + after))


def _after_bytes(job: Job, rank: int) -> float:
    """The most that a collective takes after the passes, or when they end."""
    part = job.parts[rank]
    # Gradients of weights that ranks of other axes have, too, are summed then.
    sums = [*job.summed(part), *((group, size) for ranks, group, size in job.held_twice if rank in ranks)]
    after: list[float] = [job.bench.scratch(group, "all_reduce", size).passing for group, size in sums]
    after += [gather_bytes(job, size) for size in updating(job, part).gathered_bytes]
    # From stage 2 on, a reduction that the last action began may be under way while a pipeline's losses are added up.
    adding = job.bench.scratch(job.group("pp"), "all_reduce", 8).passing if job.zero_stage > 1 else 0
    for size in set(job.reduced_bytes(part)):
        after += [reduce_bytes(job, size) + adding, gather_bytes(job, size)]
    return max(after, default=0.0)


def _passes(job: Job) -> list[_Passes]:
    """What forward and backward of all micro-batches take, on each pipeline rank."""
    if not job.pipelined:
        return [_unpiped(job)]
    ranks = range(len(job.parts))
    if max(stage.input_bytes for stage in job.stages) <= job.bench.cluster.eager_bytes:
        return job.once(lambda: _piped(job, ranks), "passes")
    # Messages stay until they are expected, which depends on when the ranks begin: in the first step all at once.
    first, later = (
        job.once(partial(_piped, job, ranks, simulated(job, starts)[0].course), "passes", *starts)
        for starts in ((), starts_s(job))
    )
    return [_Passes(*map(max, a, b)) for a, b in zip(first, later, strict=True)]


def _piped(job: Job, ranks: Sequence[int], course: Course | None = None) -> list[_Passes]:
    """The same on ranks of a pipeline, along its schedule, with ZeRO from stage 2 on beside a second stream."""
    beside = Beside(job, travel_with_bytes) if job.zero_stage > 1 else None
    found = peaks(job.schedule, job.stages, course=course, meanwhile=beside, ranks=ranks)
    if beside:
        collectives = [beside.streams[rank].collective_bytes for rank in ranks]
    else:
        scratch = [layer.scratch_bytes for layer in job.anatomy.layers]
        collectives = [max(scratch[layer] for layer in job.parts[rank].layers) for rank in ranks]
    return [_Passes(*each, most) for each, most in zip(found, collectives, strict=True)]


def _unpiped(job: Job) -> _Passes:
    """The same on ranks with all layers: two micro-batches, if there are more, as all but the last are alike."""
    whole, (pieces, layers) = joined(job.anatomy.layers), unpiped(job)
    streams = Streams(travel_with_bytes(job, pieces))
    for more in range(min(job.config.micro_batches, 2))[::-1]:
        streams.forward(layers["F"])
        streams.backward(layers["B"], last=not more)
    during = max(whole.levels[letter].during for letter in "FB")
    passing = max(whole.passing[letter] for letter in "FB")
    text_bytes = whole.text_bytes * job.config.micro_batches
    return _Passes(during + text_bytes, passing, streams.held_bytes + text_bytes, streams.collective_bytes)


def _stays_bytes(job: Job, rank: int) -> int:
    """What a rank's communicators keep of memory that ranks share, where they have one."""
    if not job.bench.cluster.one_memory:
        return 0
    stays = Counter[str]()
    for name, group, operation, num_bytes in communicators(job, rank):
        stays[name] = max(stays[name], job.bench.scratch(group, operation, num_bytes).stays)
    return job.anatomy.shared_bytes + stays.total()
