"""Memory: the most that each rank of a line holds in a step, by categories of the ledger."""

from simdist.parallel.memory import rule_bytes
from simdist.parallel.pipeline import joined, peak_bytes
from simdist.parallel.zero.slots import Slots
from simdist.planning.job import Job, Part

__all__ = ["fullest", "memory"]


def fullest(job: Job) -> int:
    """The rank of the line that holds most."""
    return max(range(len(job.parts)), key=lambda rank: sum(memory(job, rank).values()))


def memory(job: Job, rank: int) -> dict[str, float]:
    """The most bytes of each category on a rank of the line: see `paper_bytes` for what each stage of ZeRO divides.

    What a rank holds at once is at most their sum: gradients are complete when activations are gone.
    """
    part, zero, copies = job.parts[rank], job.config.zero or 0, len(job.copies.ranks)
    short, precision = job.itemsize, job.recipe.precision
    full = precision.master_dtype.itemsize
    own = part.size / copies if zero else part.size
    masters = full if zero in (1, 2) or precision.mixed else 0
    return {
        "parameters": (own if zero == 3 else part.size) * short,
        "gradients": (own if zero >= 2 else part.size) * short,
        "optimizer state": own * masters + rule_bytes(job.recipe, round(own)),
        "activations": _activations(job, rank),
        "communication": _passing(job, part),
        "buffers": max(job.anatomy.layers[layer].buffer_bytes for layer in part.layers),
    }


def _activations(job: Job, rank: int) -> float:
    """Of all micro-batches that are in flight at once; their text is one array, which stays."""
    sizes: list[float] = [windows / job.windows[0] for windows in job.windows]
    if job.pipelined:
        return peak_bytes(job.schedule, rank, job.stages, sizes)
    whole = joined(job.anatomy.layers)
    return max(whole.levels[letter].during for letter in "FB") + whole.text_bytes * sum(sizes)


def _passing(job: Job, part: Part) -> float:
    """The units that stages 2 and 3 have room for, and the chunk that a reduction receives, of the largest unit."""
    zero, copies = job.config.zero or 0, len(job.copies.ranks)
    units = job.units(part)
    room = Slots.shared(units).size * (zero - 1) if zero > 1 else 0
    whole = not zero and (job.pipelined or job.config.method == "dp")
    reduced = part.size if whole else max(unit.room for unit in units)
    return (room + (reduced / copies if copies > 1 else 0)) * job.itemsize
