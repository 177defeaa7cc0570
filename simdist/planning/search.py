"""Search: the best ways to train a model on a cluster."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from simdist.errors import require_kind
from simdist.planning.job import Job
from simdist.planning.memory import RankMemory, least_bytes, memory, ordered_bytes
from simdist.planning.space import ways
from simdist.planning.step import Step, computing_s, least_s, passes_s, step
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

    def parts_s(self, bench: Workbench) -> list[float]:
        """What the step is spent on: computing, communication within layers, bubble, gradients, update."""
        alone_s = computing_s(Job(self.config, bench))
        return [alone_s, self.step.passes_s - alone_s, *self.step[1:]]

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


def search(given: Mapping[str, Any], bench: Workbench, seen: Callable[[], object] = lambda: None) -> Plans:
    """Find the best of all ways that keep the given settings.

    Args:
        given: settings of a `Config`: see `ways`.
        seen: called for each way tried.

    Raises:
        ArgumentError, UnknownNameError: as for `ways`.
    """
    require_kind("bench", bench, Workbench, 'Workbench("h100", ranks=8)')
    best, too_large, tried = list[Plan](), list[Plan](), 0
    for _, way in groupby(ways(given, bench.ranks, bench.cluster), lambda way: _mesh(way[0])):
        found = _Search(way, bench, seen)
        tried += found.tried
        fastest = found.fastest()
        (best if fastest else too_large).append(fastest or found.smallest())
    return Plans(
        sorted(best, key=lambda plan: plan.step.seconds), sorted(too_large, key=lambda plan: plan.num_bytes), tried
    )


_mesh = attrgetter("dp", "tp", "pp", "sp", "ep")
_kind = attrgetter("sequence_parallel", "ulysses", "method", "zero", "shards", "schedule", "chunks", "recompute")
"""What tells the configs of a mesh apart, except into how many micro-batches they cut a batch."""


class _Search:
    """The search among all ways on one mesh: best first, by lower bounds on their steps.

    The bound of a way becomes closer each time it comes first: the passes without a bubble, then all that a step takes
    at least, then, if its memory may fit, the simulated step. One that comes first with the last of these is the
    fastest. If it does not fit, its next config, which recomputes more and so takes longer, joins the queue. Where even
    a lower bound on memory does not fit, neither do configs that differ only in having fewer micro-batches, which need
    more: they are not simulated.

    Args:
        ways: of one mesh, in the order of `ways`: those with the most micro-batches first.
        bench: where to measure.
        seen: called for each way.

    Attributes:
        tried: the number of ways.
    """

    def __init__(self, ways: Iterable[Sequence[Config]], bench: Workbench, seen: Callable[[], object]) -> None:
        self.tried = 0
        self._bench = bench
        self._unfit: list[tuple[float, Job]] = []  # each with its least bytes
        self._queue: list[tuple[float, int, int, Job, Sequence[Config]]] = []
        self._hopeless: dict[tuple[object, ...], int] = {}  # kinds that do not fit with so many micro-batches
        for way in ways:
            self.tried += 1
            seen()
            self._push(self.tried, way)

    def fastest(self) -> Plan | None:
        """The fastest plan that fits; None if none does."""
        while self._queue:
            _, number, known, job, more = heappop(self._queue)
            if known == 0:
                bound_s = least_s(job)
            elif known == 1 and self._fits(ordered_bytes(job)):
                bound_s = step(job).seconds
            elif known == 2 and self._fits((fullest := _fullest(job))[1].num_bytes):
                return _plan(job, *fullest)
            else:
                self._unfit.append((least_bytes(job), job))
                self._push(number, more)
                continue
            heappush(self._queue, (bound_s, number, known + 1, job, more))
        return None

    def smallest(self) -> Plan:
        """The plan of the way that needs the least memory, if none fits."""
        (_, first), *others = sorted(self._unfit, key=itemgetter(0))
        least = first, *_fullest(first)
        for num_bytes, job in others:
            if num_bytes >= least[-1].num_bytes:
                break
            least = min(least, (job, *_fullest(job)), key=lambda known: known[-1].num_bytes)
        return _plan(*least)

    def _push(self, number: int, way: Sequence[Config]) -> None:
        """Queue the first of these configs that may fit."""
        for k, config in enumerate(way):
            if config.micro_batches <= self._hopeless.get(kind := _kind(config), 0):
                continue
            job = Job(config, self._bench)
            if self._fits(least := least_bytes(job)):
                heappush(self._queue, (passes_s(job), number, 0, job, way[k + 1 :]))
                return
            self._hopeless[kind] = config.micro_batches
            self._unfit.append((least, job))

    def _fits(self, num_bytes: float) -> bool:
        return num_bytes <= self._bench.cluster.device.memory_bytes
