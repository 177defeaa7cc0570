"""Search: the best ways to train a model on a cluster."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simdist.errors import require_kind
from simdist.planning.job import Job
from simdist.planning.memory import RankMemory, memory
from simdist.planning.space import ways
from simdist.planning.step import Step, step
from simdist.planning.workbench import Workbench
from simdist.training.config import Config

__all__ = ["Plan", "Plans", "planned", "search"]


class Plan(NamedTuple):
    """A way to train, and the cost of its step.

    Attributes:
        config: of the run.
        sizes: of the axes of its mesh.
        rank: the pipeline rank with the most memory in use.
        memory: its peak bytes, by category.
        num_bytes: its peak of all at once.
        step: the predicted times.
    """

    config: Config
    sizes: Mapping[str, int]
    rank: int
    memory: Mapping[str, float]
    num_bytes: float
    step: Step

    def __repr__(self) -> str:
        return f"<plan of {self.step.seconds:.4g} s a step and {self.num_bytes / 1e9:,.4g} GB: {self.config!r}>"


class Plans(NamedTuple):
    """The result of a search.

    Attributes:
        best: for each mesh on which the model fits, the fastest way; the fastest first.
        too_large: for each other mesh, the way that needs the least memory; the smallest first.
        tried: the number of ways tried.
    """

    best: list[Plan]
    too_large: list[Plan]
    tried: int

    def __repr__(self) -> str:
        best = f", the first {self.best[0]!r}" if self.best else ""
        return f"<plans: {len(self.best)} fit{best}; {len(self.too_large)} are too large; tried: {self.tried:,}>"


def planned(config: Config, bench: Workbench) -> Plan:
    """The plan of a run with this config, whether it fits or not.

    Raises:
        ArgumentError: as for `Job`.
    """
    job = Job(config, bench)
    return _plan(job, *_fullest(job))


def _fullest(job: Job) -> tuple[int, RankMemory]:
    """The pipeline rank with the most memory in use, and that."""
    return max(enumerate(memory(job)), key=lambda pair: pair[1].num_bytes)


def _plan(job: Job, rank: int, held: RankMemory) -> Plan:
    return Plan(job.config, job.sizes, rank, *held, step(job))


def _kind(config: Config) -> tuple[object, ...]:
    """All that tells ways apart, except into how many micro-batches they cut a batch, and what they recompute."""
    axes = config.dp, config.tp, config.pp, config.sp, config.ep, config.sequence_parallel, config.ulysses
    return *axes, config.method, config.zero, config.shards, config.schedule, config.chunks


def search(given: Mapping[str, Any], bench: Workbench, seen: Callable[[], object] = lambda: None) -> Plans:
    """Try all ways that keep the given settings, each with the least recomputation that fits.

    Args:
        given: settings of a `Config`: see `ways`.
        seen: called for each way tried.

    Raises:
        ArgumentError, UnknownNameError: as for `ways`.
    """
    require_kind("bench", bench, Workbench, 'Workbench("h100", ranks=8)')
    best: dict[tuple[int, ...], Plan] = {}
    too_large: dict[tuple[int, ...], tuple[Job, int, RankMemory]] = {}
    hopeless: dict[tuple[object, ...], int] = {}  # ways that do not fit with so many micro-batches, nor with fewer
    tried = 0
    for way in ways(given, bench.ranks, bench.cluster):
        if way[0].micro_batches <= hopeless.get(kind := _kind(way[0]), 0):
            continue
        for config in way:
            tried += 1
            seen()
            job = Job(config, bench)
            mesh = tuple(job.sizes.values())
            if mesh in best and job.busiest_s >= best[mesh].step.seconds:
                break  # recomputation only takes longer
            rank, held = _fullest(job)
            if held.num_bytes <= bench.cluster.device.memory_bytes:
                plan = _plan(job, rank, held)  # after the check of memory: a pipeline's time is expensive to predict
                best[mesh] = min(best.get(mesh, plan), plan, key=lambda plan: plan.step.seconds)
                break
            if mesh not in too_large or held.num_bytes < too_large[mesh][-1].num_bytes:
                too_large[mesh] = job, rank, held
        else:
            hopeless[kind] = way[0].micro_batches
    nowhere = [_plan(*least) for mesh, least in too_large.items() if mesh not in best]
    return Plans(
        sorted(best.values(), key=lambda plan: plan.step.seconds),
        sorted(nowhere, key=lambda plan: plan.num_bytes),
        tried,
    )
