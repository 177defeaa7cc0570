"""Step: the time of a training step, composed of the times of its parts."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf
from operator import add
from typing import NamedTuple

from simdist.cluster import Link
from simdist.parallel.pipeline import Simulation, simulate
from simdist.parallel.pipeline.earliest import earliest_ends
from simdist.planning.anatomy import Anatomy, anatomy
from simdist.planning.group import Group
from simdist.planning.job import Job, Part
from simdist.planning.overlap import micro_batches_s
from simdist.planning.stages import Beside, num_passes, over_copies_s, stage_times, travel, unpiped
from simdist.planning.updating import updating
from simdist.training.methods import CUTTING
from simdist.training.pipelines import over_links

__all__ = ["Step", "computing_s", "least_s", "passes_s", "sending_s", "simulated", "starts_s", "step"]


class Step(NamedTuple):
    """The time of a step, by what it is spent on.

    Attributes:
        passes_s: forward and backward of all micro-batches, including communication between ranks that share layers;
            the average over the pipeline ranks.
        bubble_s: waiting for other stages, on average.
        gradients_s: from the end of the passes until all gradients are reduced, and waiting for weights in between.
        update_s: the update, including ZeRO's all-gather of new weights, on the slowest rank.
    """

    passes_s: float
    bubble_s: float
    gradients_s: float
    update_s: float

    @property
    def seconds(self) -> float:
        """The whole step."""
        return sum(self)


def step(job: Job) -> Step:
    """A step of this job, from the first micro-batch to the new weights.

        passes        each layer's time, by `anatomy`; in a pipeline by its schedule, simulated with the stages' times
        gradients     the formulas of the collectives; overlapped with the passes, where they start during backward
        update        the bytes that the update rule reads and writes, at the rate of memory

    Where layers send over links that gradients travel over at that time, each gets half of them. In truth they take
    turns message by message, and wait for each other: a step was between 8% shorter and 6% longer, 18% with experts.
    """
    if job.pipelined:
        simulation, _ = simulated(job)
        bubble_s, end_s = simulation.bubble, simulation.makespan
    else:
        bubble_s, end_s = 0.0, _overlapped(job)
    left_s = max(0.0, end_s + max(_ready_s(job, _late_s(job))) - passes_s(job) - bubble_s)
    return Step(passes_s(job), bubble_s, left_s, max(_update_s(job, part) for part in job.parts))


def passes_s(job: Job) -> float:
    """Forward and backward of all micro-batches, the average over the pipeline ranks: less than any step."""
    return _passes_s(job, job.anatomy)


def least_s(job: Job) -> float:
    """A lower bound on the seconds of a step, found without a simulation."""
    end_s = 0.0
    if job.pipelined:
        end_s = max(job.once(lambda: earliest_ends(job.schedule, stage_times(job)), "earliest ends"))
    passed_s = max(passes_s(job), end_s + max(_ready_s(job))) + max(_update_s(job, part) for part in job.parts)
    return max(passed_s, *(sending_s(job, rank) for rank in range(len(job.parts))))


def computing_s(job: Job) -> float:
    """The time of the passes if messages took no time."""
    free = Link(0.0, inf)
    cluster = job.bench.machine(job.config).with_(inside=free, between=free)
    key = *job.cut, job.windows
    return _passes_s(job, job.bench.once(lambda: anatomy(job.config, cluster, job.windows), "alone", *key))


def sending_s(job: Job, rank: int) -> float:
    """The time of a step's communication of gradients and weights between ranks that share them, overlapped or not.

    Args:
        rank: of the pipeline.
    """
    zero, k, part = job.zero_stage, num_passes(job, rank), job.parts[rank]
    reduced, gathered = ((1, 0), (1, 1), (k, 1), (k, 2 * k))[zero]
    return _summed_s(job, part) + sum(
        reduced * job.holders.seconds("reduce_scatter", num_bytes)
        + gathered * job.holders.seconds("all_gather", num_bytes)
        + over_copies_s(job, num_bytes)
        for num_bytes in job.reduced_bytes(part)
    )


# -- the passes ---------------------------------------------------------------------------------------


def _passes_s(job: Job, of: Anatomy) -> float:
    """Forward and backward of all micro-batches, the average over the pipeline ranks."""
    each_s = sum(layer.seconds["F"] + layer.seconds["B"] for layer in of.layers)
    return job.config.micro_batches * each_s / len(job.parts)


def simulated(job: Job, starts_s: tuple[float, ...] = ()) -> tuple[Simulation, list[float]]:
    """The pipeline's schedule, simulated with the times of its stages and of messages over the nodes' network cards;
    and, with ZeRO from stage 2 on, when each rank has reduced its gradients.

    Ranks that share layers send at once: each message arrives when all have. Messages of other pipelines interleave:
    a card is busy for as long as it takes to send one message of each, and not before the step begins.

    Args:
        starts_s: when each rank begins; all at once if not given.
    """
    return job.once(lambda: _simulated(job, starts_s), "simulated", *starts_s)


def _simulated(job: Job, starts_s: tuple[float, ...]) -> tuple[Simulation, list[float]]:
    num_bytes, cluster, line = max(stage.input_bytes for stage in job.stages), job.bench.cluster, job.group("pp")
    at_once, in_turn = (ceil(n / cluster.nics_per_node) for n in (job.group(*CUTTING).nodes.most, line.at_once))
    times = replace(stage_times(job), starts=starts_s)
    links = over_links(times, cluster, line.ranks, num_bytes, at_once, in_turn)
    if job.zero_stage < 2:
        return simulate(job.schedule, links), []
    beside = Beside(job)
    return simulate(job.schedule, links, end=beside.end_s), [streams.finish() for streams in beside.streams]


def _late_s(job: Job) -> list[float]:
    """By rank of a pipeline, for how long reductions of its passes go on after the end of all passes."""
    if not job.pipelined or job.zero_stage < 2:
        return []
    simulation, reduced_s = simulated(job)
    return [max(0.0, end_s - simulation.makespan) for end_s in reduced_s]


def starts_s(job: Job) -> tuple[float, ...]:
    """When each pipeline rank begins its next step, after the first that does.

    It has been at the meeting in which losses are added up, and at those for norms, and it has updated its weights: one
    with few weights updates them sooner.
    """
    simulation, _ = simulated(job)
    met_s = _met([row[-1] - simulation.makespan for row in simulation.course.end], job.group("pp"), 8)
    left_s = list(map(max, met_s, _late_s(job) or met_s))
    begin_s = [ready_s + _update_s(job, part) for ready_s, part in zip(_ready_s(job, left_s), job.parts, strict=True)]
    return tuple(each_s - min(begin_s) for each_s in begin_s)


def _overlapped(job: Job) -> float:
    """The passes of ranks with all layers, with the communication that overlaps with them.

    A layer needs a kind of link that pieces travel over for the time that it saves if such links take none, times the
    share that the pieces save.
    """
    (pieces, layers), nodes = unpiped(job), job.group(*CUTTING).nodes
    sent, kinds = travel(job, pieces), ("inside", "between") if nodes.num_nodes > 1 else ("inside",)
    for kind in kinds if sent.seconds and len(nodes) > 1 else ():
        quick = Job(job.config, job.bench.without(kind))
        if share := 1 - travel(quick, pieces).seconds / sent.seconds:
            free = unpiped(quick)[1]
            for letter in "FB":
                pairs = zip(layers[letter], free[letter], strict=True)
                layers[letter] = [
                    own._replace(sent_s=own.sent_s + share * (own.seconds - less.seconds)) for own, less in pairs
                ]
    return micro_batches_s(layers["F"], layers["B"], sent, job.config.micro_batches)


# -- after them ---------------------------------------------------------------------------------------


def _ready_s(job: Job, left_s: Sequence[float] = ()) -> list[float]:
    """By pipeline rank, the time until its gradients are ready for the update, from the end of the passes on the last
    rank, which the others await to add up their losses.

    Args:
        left_s: by rank, how long earlier reductions go on from there; if not given, not at all.
    """
    at_s = list(left_s) or [0.0] * len(job.parts)
    reduced_s = [_reduced_s(job, part) for part in job.parts]
    if job.zero_stage != 1:  # the order of `Pipeline.reduce`
        at_s, reduced_s = list(map(add, at_s, reduced_s)), [0.0] * len(at_s)
    for ranks, group, num_bytes in job.held_twice:
        met_s = max(at_s[rank] for rank in ranks) + group.seconds("all_reduce", num_bytes)
        for rank in ranks:
            at_s[rank] = met_s
    at_s = list(map(add, at_s, reduced_s))
    if job.recipe.precision.scaled:  # the agreement that they are finite everywhere
        at_s = _met(at_s, job.group("pp", "copies", "holders", "ep", "sp", "tp"), 1)
    model = job.group("pp", "holders", "ep", "sp", "tp")
    norms = [16] * 2 if job.recipe.max_norm is not None else []
    if job.recipe.sums_norms:  # norms of each weight and of its change, if all are matrices
        norms += [32 * max(len(part.weights) for part in job.parts)] * 2
    for num_bytes in norms:
        at_s = _met(at_s, model, num_bytes)
    return at_s


def _met(at_s: Sequence[float], group: Group, num_bytes: int) -> list[float]:
    """When pipeline ranks that come then leave an all-reduce: each once what the others bring has reached it. So the
    last leaves first, unless the group has other ranks that come with it.
    """
    after_s = [each_s + group.seconds("all_reduce", num_bytes) for each_s in at_s]
    if len(group.ranks) > len(at_s):
        return [max(after_s)] * len(at_s)
    return [max([own_s, *after_s[:rank], *after_s[rank + 1 :]]) for rank, own_s in enumerate(at_s)]


def _reduced_s(job: Job, part: Part) -> float:
    """The time to reduce gradients over dp after the passes, if not overlapped, and over the axes of `sums`."""
    late = job.reduced_bytes(part) if job.reduces_late else []
    during = job.zero_stage > 1  # a pipeline's; later they are only summed over copies
    found_s = 0.0 if during else sum(job.holders.seconds("reduce_scatter", size) for size in late)
    found_s += sum(over_copies_s(job, size) for size in late)
    return found_s + _summed_s(job, part)


def _summed_s(job: Job, part: Part) -> float:
    """The time to sum gradients over the axes of `sums`."""
    return sum(group.seconds("all_reduce", num_bytes) for group, num_bytes in job.summed(part))


def _update_s(job: Job, part: Part) -> float:
    """The time to update a rank's weights, to clear its gradients, and to gather the new weights."""
    zero, short = job.zero_stage, job.itemsize
    own, precision = job.own(part), job.recipe.precision
    took = updating(job, part)
    seconds = took.seconds + job.memory_s((own if zero > 1 else part.size) * short)
    seconds += sum(job.holders.seconds("all_gather", num_bytes) for num_bytes in took.gathered_bytes)
    if zero in (1, 2):
        rounded = 0 if precision.mixed else short + precision.master_dtype.itemsize  # a mixed update includes it
        moved = 2 * short if zero == 1 else 0  # chunks are made contiguous
        seconds += job.memory_s(own * (rounded + moved))
        seconds += sum(job.holders.seconds("all_gather", piece.room * short) for piece in job.pieces(part))
    return seconds
