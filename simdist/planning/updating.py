"""Updating: the cost of updating a part's weights, on the ranks of dp that share it."""

from collections.abc import Sequence
from typing import NamedTuple

from simdist.arrays import Array, consecutive, partition, phantom
from simdist.optim.matrices import whole_here
from simdist.parallel.holding import Holding
from simdist.parallel.memory import rule_bytes
from simdist.parallel.zero.unit import gatherer
from simdist.planning.job import Job, Part
from simdist.planning.workbench import update_s

__all__ = ["Updating", "updating"]


class Updating(NamedTuple):
    """The cost of an update rule.

    Attributes:
        seconds: of a step, on the slowest rank.
        state_bytes: of the rule, on the rank with most.
        gathered_bytes: of each all-gather in a step.
    """

    seconds: float
    state_bytes: int
    gathered_bytes: tuple[int, ...] = ()


def updating(job: Job, part: Part) -> Updating:
    """The cost of updating a part: found once for all runs on the bench with these pieces and this rule."""
    rule = job.recipe, job.recipe.maker, job.zero_stage
    return job.of_pieces(part, lambda: (_of_all if job.recipe.gathers else _by_number)(job, part), "updating", *rule)


def _by_number(job: Job, part: Part) -> Updating:
    """The cost by the number of weights."""
    own = job.own(part)
    return Updating(own * job.bench.update_s(job.config), rule_bytes(job.recipe, own))


def _of_all(job: Job, part: Part) -> Updating:
    """The cost of a rule that gathers whole matrices, by a step of it on phantoms."""
    p, each = len(job.holders.ranks), dict[tuple[str, ...], Updating]()
    sizes = [max(piece.ends.values()) for piece in job.pieces(part)] if job.zero_stage else [part.size]
    units = consecutive(sizes)
    for rank in range(p):
        chunks = (partition(unit.stop - unit.start, p)[rank] for unit in units)
        holding = Holding(slice(u.start + c.start, u.start + c.stop) for u, c in zip(units, chunks, strict=True))
        alike = tuple(str(holding.own(span)) for span in part.parameters.spans.values())
        if alike not in each:
            each[alike] = _on_rank(job, part, units, holding)
    slowest = max(each.values())
    return slowest._replace(state_bytes=max(found.state_bytes for found in each.values()))


def _on_rank(job: Job, part: Part, units: Sequence[slice], holding: Holding) -> Updating:
    gathered = list[int]()

    def all_gather(chunk: Array, i: int) -> Array:
        unit = phantom(units[i].stop - units[i].start, chunk.dtype)
        gathered.append(unit.nbytes)
        return unit

    whole = gatherer(units, holding, all_gather) if job.zero_stage else whole_here
    seconds = update_s(job.bench.machine(job.config), job.recipe, part.parameters, holding, whole)
    return Updating(seconds, rule_bytes(job.recipe, part.parameters, holding), tuple(gathered))
