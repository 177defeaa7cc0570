"""Search: the best ways to train a model on a cluster."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simdist.planning.job import Job
from simdist.planning.memory import memory
from simdist.planning.space import ways
from simdist.planning.step import Step, step
from simdist.planning.workbench import Workbench
from simdist.training.config import Config

__all__ = ["Plan", "Plans", "planned", "search"]


class Plan(NamedTuple):
    """A way to train, and what a step of it takes.

    Attributes:
        config: of the run.
        sizes: of the axes of its mesh.
        rank: which of a line's holds most,
        memory: and what, by category.
        step: where the time goes.
    """

    config: Config
    sizes: Mapping[str, int]
    rank: int
    memory: Mapping[str, float]
    step: Step

    @property
    def num_bytes(self) -> float:
        """Of memory, at most."""
        return sum(self.memory.values())


class Plans(NamedTuple):
    """What a search has found.

    Attributes:
        best: for each mesh on which the model fits, the way that takes the least time; the fastest first.
        too_large: for each of the others the way that takes the least memory; the smallest first.
        tried: how many ways were looked at.
    """

    best: list[Plan]
    too_large: list[Plan]
    tried: int


def planned(config: Config, bench: Workbench) -> Plan:
    """What a run by this config takes, whether it fits or not.

    Raises:
        ArgumentError: as of `Job`.
    """
    return _plan(Job(config, bench))


def _plan(job: Job) -> Plan:
    held = [memory(job, rank) for rank in range(len(job.parts))]
    fullest = max(range(len(held)), key=lambda rank: sum(held[rank].values()))
    return Plan(job.config, job.sizes, fullest, held[fullest], step(job))


def search(given: Mapping[str, Any], bench: Workbench, seen: Callable[[], object] = lambda: None) -> Plans:
    """Look at all ways that leave the given settings as they are, each with the least recomputation that fits.

    Args:
        given: settings of a `Config`: see `ways`.
        seen: is called for each.

    Raises:
        ArgumentError: there is no way.
    """
    best: dict[tuple[int, ...], Plan] = {}
    too_large: dict[tuple[int, ...], Plan] = {}
    tried = 0
    for way in ways(given, bench.ranks, bench.cluster):
        for config in way:
            tried += 1
            seen()
            job = Job(config, bench)
            mesh = tuple(job.sizes.values())
            if mesh in best and job.busiest_s >= best[mesh].step.seconds:
                break  # and to recompute takes longer still
            plan = _plan(job)
            if plan.num_bytes <= bench.cluster.device.memory_bytes:
                best[mesh] = min(best.get(mesh, plan), plan, key=lambda plan: plan.step.seconds)
                break
            too_large[mesh] = min(too_large.get(mesh, plan), plan, key=lambda plan: plan.num_bytes)
    return Plans(
        sorted(best.values(), key=lambda plan: plan.step.seconds),
        sorted((plan for mesh, plan in too_large.items() if mesh not in best), key=lambda plan: plan.num_bytes),
        tried,
    )
