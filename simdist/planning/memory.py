"""Memory: the peak memory of each pipeline rank in a step, by category of the ledger."""

from simdist.parallel.memory import rule_bytes
from simdist.parallel.pipeline import joined, peak_bytes
from simdist.parallel.sequence import ring_attention_room
from simdist.parallel.zero.slots import Slots
from simdist.planning.job import Job, Part
from simdist.training.models import shape

__all__ = ["memory"]


def memory(job: Job, rank: int) -> dict[str, float]:
    """The peak bytes of each category on a pipeline rank: see `kept` for what each stage of ZeRO divides.

    The peak of the total is about their sum, or less: gradients are complete when activations have been freed.
    Communication counts ZeRO's buffers for units, and a chunk of the largest reduction or the blocks of ring attention.
    Some algorithms take more: those by halving need half of the reduction.
    """
    part, zero, short = job.parts[rank], job.config.zero or 0, job.itemsize
    own, whole, precision = job.own(part), _whole(job, part), job.recipe.precision
    masters = precision.master_dtype.itemsize if zero in (1, 2) or precision.mixed else 0
    return {
        "parameters": (own if zero == 3 else whole) * short,
        "gradients": (own if zero >= 2 else whole) * short,
        "optimizer state": own * masters + rule_bytes(job.recipe, own),
        "activations": _activations(job, rank),
        "communication": _passing(job, rank),
        "buffers": max(job.anatomy.layers[layer].buffer_bytes for layer in part.layers),
    }


def _whole(job: Job, part: Part) -> int:
    """The number of weights of a part, with ZeRO's padding."""
    return sum(piece.room for piece in job.pieces(part)) if job.config.zero else part.size


def _activations(job: Job, rank: int) -> float:
    """The activations of all micro-batches in flight at once; their text is one array, which stays allocated."""
    if job.pipelined:
        return peak_bytes(job.schedule, rank, job.stages)
    whole = joined(job.anatomy.layers)
    return max(whole.levels[letter].during for letter in "FB") + whole.text_bytes * job.config.micro_batches


def _passing(job: Job, rank: int) -> float:
    part, zero = job.parts[rank], job.config.zero or 0
    reducing = len((job.holders if zero else job.copies).ranks)
    room = Slots.shared(job.pieces(part)).size * (zero - 1) * job.itemsize if zero > 1 else 0
    chunk = max(job.reduced_bytes(part), default=0) / reducing if reducing > 1 else 0
    twice = [job.weights_bytes(ranks[0], names) / len(ranks) for ranks, names in job.held_twice() if rank in ranks]
    return room + max(chunk, _going_round(job), *twice)


def _going_round(job: Job) -> int:
    """The bytes of keys and values, and of their derivatives, in ring attention."""
    size, sp, tp = shape(job.config), job.sizes["sp"], job.sizes["tp"]
    if size is None or sp == 1 or job.config.ulysses:
        return 0
    own_bytes = 2 * job.windows * size.context * size.kv_width // (sp * tp) * job.itemsize
    return ring_attention_room(sp, own_bytes, job.itemsize)
