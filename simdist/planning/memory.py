"""Memory: the peak memory of each pipeline rank in a step, by category of the ledger."""

from typing import NamedTuple

from simdist.parallel.memory import rule_bytes
from simdist.parallel.pipeline import joined, peak_bytes
from simdist.parallel.zero.slots import Slots
from simdist.planning.job import Job, Part

__all__ = ["Memory", "memory"]


class Memory(NamedTuple):
    """The predicted memory of a pipeline rank.

    Attributes:
        peaks: the most bytes of each category, by name.
        num_bytes: the most of all at once. That is less than the sum of the peaks, because between layers most may pass
            when little is kept.
    """

    peaks: dict[str, float]
    num_bytes: float


def memory(job: Job, rank: int) -> Memory:
    """The peak bytes on a pipeline rank: see `kept` for what each stage of ZeRO divides.

    Gradients, and what collectives on them take, count as if they existed at once with all activations.
    Communication counts ZeRO's buffers for units, the scratch of the largest collective on gradients or weights, and
    that of the largest exchange within layers, as if both were under way at once.
    """
    part, zero, short = job.parts[rank], job.config.zero or 0, job.itemsize
    own, whole, precision = job.own(part), _whole(job, part), job.recipe.precision
    masters = precision.master_dtype.itemsize if zero in (1, 2) or precision.mixed else 0
    peaks = {
        "parameters": (own if zero == 3 else whole) * short,
        "gradients": (own if zero >= 2 else whole) * short,
        "optimizer state": own * masters + rule_bytes(job.recipe, own),
        "activations": _activations(job, rank),
        "communication": _passing(job, rank),
        "buffers": max(job.anatomy.layers[layer].buffer_bytes for layer in part.layers) + _awaited(job),
    }
    apart = sum(num_bytes for category, num_bytes in peaks.items() if category not in ("activations", "buffers"))
    return Memory(peaks, apart + _activations(job, rank, working=True) + _awaited(job))


def _whole(job: Job, part: Part) -> int:
    """The number of weights of a part, with ZeRO's padding."""
    return sum(piece.room for piece in job.pieces(part)) if job.config.zero else part.size


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


def _passing(job: Job, rank: int) -> float:
    part, zero, holders = job.parts[rank], job.config.zero or 0, len(job.holders.ranks)
    room = Slots.shared(job.pieces(part)).size * (zero - 1) * job.itemsize if zero > 1 else 0
    calls = ((job.holders, "reduce_scatter", 1), (job.holders, "all_gather", 1), (job.copies, "all_reduce", holders))
    sizes = {*job.reduced_bytes(part)}
    scratch = (job.bench.scratch_bytes(group, name, size // cut) for group, name, cut in calls for size in sizes)
    twice = [job.weights_bytes(ranks[0], names) / len(ranks) for ranks, names in job.held_twice() if rank in ranks]
    within = max(job.anatomy.layers[layer].scratch_bytes for layer in part.layers)
    return room + max(scratch, default=0.0) + max([within, *twice])
