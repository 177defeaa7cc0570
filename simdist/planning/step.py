"""Step: how long a training step takes, put together from what its parts take."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf
from typing import NamedTuple

from simdist.cluster import Link
from simdist.parallel.pipeline import Simulation, Times, simulate
from simdist.parallel.zero.slots import Slots
from simdist.planning.anatomy import Anatomy, anatomy
from simdist.planning.group import members
from simdist.planning.job import Job, Part
from simdist.planning.overlap import Layer, Travel, micro_batches_s
from simdist.training.methods import CUTTING
from simdist.training.pipelines import hops

__all__ = ["Step", "computing_s", "sending_s", "stage_times", "step"]


class Step(NamedTuple):
    """Where the time of a step goes.

    Attributes:
        passes_s: forward and backward of all micro-batches, with what the ranks that share layers tell each other; of
            the ranks in a line on average.
        bubble_s: waiting for other stages, on average.
        gradients_s: from the end of that until all gradients are added up; and waiting for weights in between.
        update_s: new weights, of which ZeRO's ranks have to tell each other, on the rank that takes longest.
    """

    passes_s: float
    bubble_s: float
    gradients_s: float
    update_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(self)


def step(job: Job) -> Step:
    """A step of this job, from the first micro-batch to the new weights.

        passes        each layer's time, by `anatomy`; in a pipeline by its schedule, simulated with the stages' times
        gradients     the formulas of the collectives; beneath the passes, where they are sent off during backward
        update        memory's rate, for what the rule reads and writes

    What is not in it: that messages of several streams are in each other's way where they share a link. Where tp
    or sp and dp share the links of a node, a step takes up to 14% longer, and where they share its card up to 20%.
    """
    if job.pipelined:
        config, sizes = job.config, tuple(job.sizes.values())
        key = config.schedule, config.chunks, config.micro_batches, sizes, job.windows, *job.bench.cut(config)
        course = job.bench.once(lambda: _course(job), "course", *key)
        bubble_s, ends_s = course.bubble, [row[-1] for row in course.course.end]
    else:
        bubble_s, ends_s = 0.0, [_overlapped(job)]
    passes_s = _passes_s(job, job.anatomy)
    left_s = max(0.0, _complete_s(job, ends_s) - passes_s - bubble_s)
    return Step(passes_s, bubble_s, left_s, max(_update_s(job, part) for part in job.parts))


def computing_s(job: Job) -> float:
    """What the passes would take if messages took no time."""
    free = Link(0.0, inf)
    cluster = job.bench.machine(job.config).with_(inside=free, between=free)

    def make() -> Anatomy:
        return anatomy(job.config, cluster, job.windows)

    return _passes_s(job, job.bench.once(make, "alone", *job.bench.cut(job.config), job.windows))


def sending_s(job: Job, rank: int) -> float:
    """How long gradients and weights travel in a step to those who share them on dp, hidden or not.

    Args:
        rank: of the line.
    """
    zero, k = job.config.zero or 0, job.config.micro_batches
    reduced, gathered = ((1, 0), (1, 1), (k, 1), (k, 2 * k))[zero]
    return sum(
        reduced * job.holders.seconds("reduce_scatter", num_bytes)
        + gathered * job.holders.seconds("all_gather", num_bytes)
        + _over_copies_s(job, num_bytes)
        for num_bytes in job.reduced_bytes(job.parts[rank])
    )


# -- the passes ---------------------------------------------------------------------------------------


def _passes_s(job: Job, of: Anatomy) -> float:
    """Forward and backward of all micro-batches, on the ranks of the line on average."""
    each_s = sum(layer.seconds["F"] + layer.seconds["B"] for layer in of.layers)
    return job.config.micro_batches * each_s / len(job.parts)


def _course(job: Job) -> Simulation:
    """The pipeline's schedule with the times of its stages, and of messages, on the network cards of their nodes.

    Ranks that share layers send theirs at once: each arrives when all have. Those of other pipelines come in between:
    a card is held for as long as it takes to send one of each.
    """
    num_bytes, cluster, line = max(stage.input_bytes for stage in job.stages), job.bench.cluster, job.group("pp")
    at_once, in_turn = (ceil(n / cluster.nics_per_node) for n in (job.group(*CUTTING).nodes.most, line.at_once))
    between = replace(cluster.between, bytes_per_s=cluster.between.bytes_per_s / at_once)
    hops_s = hops(cluster.with_(between=between), line.ranks, num_bytes)
    near = "device", num_bytes / cluster.inside.bytes_per_s
    far = "card", in_turn * num_bytes / cluster.between.bytes_per_s
    ports = {(src, dst): near if line.nodes[src] == line.nodes[dst] else far for src, dst in hops_s}
    return simulate(job.schedule, replace(stage_times(job), communication=hops_s, ports=ports))


def stage_times(job: Job) -> Times:
    """Of the stages of a job's pipeline: without those of messages."""
    forward, inputs, weights = ([stage.seconds[letter] for stage in job.stages] for letter in "FIW")
    return Times(forward, inputs, weights)


def _overlapped(job: Job) -> float:
    """The passes of ranks that have all layers, with what travels beside them."""
    (part,), zero = job.parts, job.config.zero or 0
    pieces = [] if job.config.method == "dp" else job.pieces(part)  # which sends nothing off before all is there
    sizes = [piece.room * job.itemsize for piece in pieces]
    travel = Travel(
        [job.holders.seconds("reduce_scatter", size) + (_adding_s(job, size) if zero > 1 else 0.0) for size in sizes],
        Slots.shared(pieces).of if zero > 1 else [],
        [job.holders.seconds("all_gather", size) for size in sizes] if zero == 3 else [],
        [_over_copies_s(job, size) for size in sizes],
    )
    took: list[tuple[float, float]] = []
    for layer, weights in zip(job.anatomy.layers, job.anatomy.weights, strict=True):
        before = (0.0, 0.0) if weights else took.pop()  # what has none goes with the layer before it
        took.append((before[0] + layer.seconds["F"], before[1] + layer.seconds["B"]))
    layers = [
        Layer(
            *both,
            tuple(i for i, piece in enumerate(pieces) if piece.first == k),
            tuple(i for i, piece in enumerate(pieces) if piece.last == k),
        )
        for k, both in enumerate(took)
    ]
    return micro_batches_s(layers, travel, job.config.micro_batches)


def _adding_s(job: Job, num_bytes: int) -> float:
    """Of a piece that is reduced: to add the own chunk to what there is, and to clear the rest for the next."""
    return job.memory_s(3 * num_bytes / len(job.holders.ranks) + num_bytes)


def _over_copies_s(job: Job, num_bytes: int) -> float:
    """Of a piece that the holders have reduced: to add up over the copies what each has of it."""
    return job.copies.seconds("all_reduce", num_bytes // len(job.holders.ranks))


# -- after them ---------------------------------------------------------------------------------------


def _complete_s(job: Job, ends_s: Sequence[float]) -> float:
    """When the gradients of all ranks are what they are to be changed by.

    Args:
        ends_s: when each rank of the line is through its passes.
    """
    at_s, line = list(ends_s), members(job.sizes, "pp")
    for ranks, names in job.held_twice():
        group = job.group_of(tuple(line[rank] for rank in ranks), "pp")
        met_s = max(at_s[rank] for rank in ranks) + group.seconds("all_reduce", job.weights_bytes(ranks[0], names))
        for rank in ranks:
            at_s[rank] = met_s
    ready_s = max(at + _reduced_s(job, part) for at, part in zip(at_s, job.parts, strict=True))
    if job.recipe.precision.scaled:  # whether it is finite
        held = max(job.own(part) for part in job.parts) * job.itemsize
        ready_s += job.memory_s(held) + job.group("pp", "copies", "holders", "ep", "sp", "tp").seconds("all_reduce", 1)
    if job.recipe.max_norm is not None:
        ready_s += 2 * job.group("pp", "holders", "ep", "sp", "tp").seconds("all_reduce", 16)
    return ready_s


def _reduced_s(job: Job, part: Part) -> float:
    """To add up what copies of a rank's part found, where that is not beneath the passes, and what sums need else."""
    seconds, holders = 0.0, job.holders
    if job.pipelined or job.config.method == "dp":
        for num_bytes in job.reduced_bytes(part):
            seconds += holders.seconds("reduce_scatter", num_bytes) + _over_copies_s(job, num_bytes)
    for axes, names in job.anatomy.sums:
        items = sum(size for name, size in part.weights.items() if name in names)
        seconds += job.group(*axes).seconds("all_reduce", round(items / len(holders.ranks)) * job.itemsize)
    return seconds


def _update_s(job: Job, part: Part) -> float:
    """To change a rank's weights, to clear its gradients, and to let others know."""
    zero, short = job.config.zero or 0, job.itemsize
    own, precision = job.own(part), job.recipe.precision
    seconds = own * job.bench.update_s(job.config) + job.memory_s((own if zero > 1 else part.size) * short)
    if zero in (1, 2):
        rounded = 0 if precision.mixed else short + precision.master_dtype.itemsize  # or else the update has it
        moved = 2 * short if zero == 1 else 0  # together, at the front of them all
        seconds += job.memory_s(own * (rounded + moved))
        seconds += sum(job.holders.seconds("all_gather", piece.room * short) for piece in job.pieces(part))
    return seconds
