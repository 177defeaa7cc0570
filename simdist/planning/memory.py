"""Memory: the peak memory of each pipeline rank in a step, by category of the ledger."""

from collections.abc import Iterator
from typing import NamedTuple

from simdist.parallel.pipeline import joined, peak_bytes
from simdist.parallel.zero.formulas import kept_of
from simdist.parallel.zero.slots import Slots
from simdist.planning.group import Group, members
from simdist.planning.job import Job, Part

__all__ = ["RankMemory", "memory"]


class RankMemory(NamedTuple):
    """The predicted memory of a pipeline rank.

    Attributes:
        peaks: the most bytes of each category, by name.
        num_bytes: the most of all at once. That is less than the sum of the peaks, because between layers most may pass
            when little is kept.
    """

    peaks: dict[str, float]
    num_bytes: float


def memory(job: Job, rank: int) -> RankMemory:
    """The peak bytes on a pipeline rank: see `kept` for what each stage of ZeRO divides.

    Gradients, and what collectives on them take, count as if they existed at once with all activations.
    Communication counts ZeRO's buffers for units, and the scratch of collectives: of the largest exchange within
    layers and, if it overlaps with them, the largest reduction, as if both were under way at once; or of the largest
    collective after the passes, if that is more. Method dp reduces after the passes, when of the activations only the
    text is left; a pipeline does, too, but what its stages wait for is known only roughly.
    """
    part, zero = job.parts[rank], job.zero_stage
    pieces = job.pieces(part) if zero else []
    whole = sum(piece.room for piece in pieces) if zero else part.size
    exact = kept_of(job.recipe, zero, whole, job.own(part), Slots.shared(pieces).size)
    during, after = _scratch(job, rank)
    peaks = {
        "parameters": exact.parameters,
        "gradients": exact.gradients,
        "optimizer state": exact.optimizer_state,
        "activations": _activations(job, rank),
        "communication": exact.communication + max(during, after),
        "buffers": max(job.anatomy.layers[layer].buffer_bytes for layer in part.layers) + _awaited(job),
    }
    passing = during + _activations(job, rank, working=True) + _awaited(job)
    text_bytes = job.config.micro_batches * sum(job.anatomy.layers[layer].text_bytes for layer in part.layers)
    return RankMemory(peaks, exact.total + max(passing, after + text_bytes))


def _activations(job: Job, rank: int, working: bool = False) -> float:
    """The activations of all micro-batches in flight at once; their text is one array, which stays allocated.

    Args:
        working: whether to count what passes between layers, too.
    """
    if job.pipelined:
        return peak_bytes(job.schedule, rank, job.stages, working=working)
    whole = joined(job.anatomy.layers)
    most = max(whole.working[letter] if working else whole.levels[letter].during for letter in "FB")
    return most + whole.text_bytes * job.config.micro_batches


def _awaited(job: Job) -> float:
    """The bytes of what a stage of a pipeline waits for from its neighbours: activations from one, gradients from the
    other.
    """
    return 2 * max(stage.input_bytes for stage in job.stages) if job.pipelined else 0.0


def _scratch(job: Job, rank: int) -> tuple[float, float]:
    """The most that collectives take beside what they work on: during the passes, and after them.

    Where ranks share memory it is the same, as what they once took in it stays for the next step.
    """
    part = job.parts[rank]
    within = max(job.anatomy.layers[layer].scratch_bytes for layer in part.layers)
    reducing, after = (
        max((job.bench.scratch_bytes(*call) for call in calls), default=0.0)
        for calls in (_reductions(job, part), _sums(job, rank))
    )
    at_end = job.config.method == "dp"
    if at_end and not job.bench.cluster.one_memory:
        return within, max(reducing, after)
    most = max(within, reducing, after) if at_end or job.pipelined else max(within + reducing, after)
    return most, most


def _reductions(job: Job, part: Part) -> Iterator[tuple[Group, str, int]]:
    """The collectives of ranks of dp, which may overlap with the passes: among whom, which, and on how many bytes."""
    holders = len(job.holders.ranks)
    for num_bytes in {*job.reduced_bytes(part)}:
        yield job.holders, "reduce_scatter", num_bytes
        yield job.holders, "all_gather", num_bytes
        yield job.copies, "all_reduce", num_bytes // holders


def _sums(job: Job, rank: int) -> Iterator[tuple[Group, str, int]]:
    """Likewise those after the passes: of gradients of weights that ranks of other axes have, too."""
    part, line = job.parts[rank], members(job.sizes, "pp")
    for axes, items in job.summed(part):
        yield job.group(*axes), "all_reduce", round(items / len(job.holders.ranks)) * job.itemsize
    for ranks, names in job.held_twice():
        if rank in ranks:
            group = job.group_of(tuple(line[other] for other in ranks), "pp")
            yield group, "all_reduce", job.weights_bytes(rank, names)
