"""Pipeline: a model split into stages, and a batch split into micro-batches that pass through them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from simdist.arrays import Array
from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import Model, Noise
from simdist.parallel.data_parallel import DataParallel
from simdist.parallel.holding import Shard
from simdist.parallel.method import Method
from simdist.parallel.pipeline.passes import Passes
from simdist.parallel.pipeline.schedule import Schedule, require_schedule
from simdist.parallel.pipeline.share import Share
from simdist.parallel.pipeline.stage import MicroBatch
from simdist.parallel.pipeline.times import Times
from simdist.parallel.recipe import Recipe
from simdist.parallel.replica import Allocate
from simdist.parallel.spread import Spread
from simdist.parallel.zero import ZeRO

__all__ = ["Pipeline"]


class Pipeline(Method):
    """The ranks of `mesh.pp` have different stages of a model; those of `mesh.dp` the same stages, for other windows.

        method = Pipeline(gpt(shape), Mesh(comm, pp=4), recipe, seed, schedule("zb-h1", stages=4, micro_batches=8))
        for windows in micro_batches:           # the same on all ranks of pp
            total += method.backward(windows, scale, noise, last=…)
        method.step(learning_rate)

    The micro-batches of a step are collected, and run when the last one is added. Then gradients of parameters that
    several ranks hold are summed over pp (see `Copies`), all gradients over dp, and each rank updates its parameters.
    The weights are those of training on one rank, up to rounding.

    Args:
        model: the whole model, not yet bound.
        mesh: has as many ranks along pp as the schedule. All of its ranks must call, here and in every method.
        recipe, seed: as of `DataParallel`.
        schedule: the same on all ranks; it updates weights after the whole batch.
        costs: as of `Share`.
        zero_stage: 1 if the ranks of dp shard the optimizer's state, 0 if each has all of it.
        shards: with zero_stage, as of `ZeRO`.
        times: as of `Executor`.
        spread: how an axis inside a stage, such as tp, splits the given model.
        memory: makes weights and gradients; as of `ZeRO`, or `comm.empty`, if not given.

    Attributes:
        model: the layers of this rank.
        share: its stages.
        executor: executes the schedule.
        data: sums gradients over dp, and updates the weights.

    Raises:
        ArgumentError: the schedule updates weights within a batch, or zero_stage is not 0 or 1; also as of `Share`.
        ScheduleError: the schedule is invalid.
    """

    def __init__(
        self,
        model: Model,
        mesh: Mesh,
        recipe: Recipe,
        seed: int,
        schedule: Schedule,
        *,
        costs: Sequence[float] | None = None,
        zero_stage: int = 0,
        shards: int = 0,
        times: Times | None = None,
        spread: Spread | None = None,
        memory: Allocate | None = None,
    ) -> None:
        require_schedule(schedule)
        if not schedule.weights.flushes or zero_stage not in (0, 1):
            raise ArgumentError(
                f"{schedule.name} with policy {schedule.weights.policy!r} and ZeRO stage {zero_stage}; "
                "a pipeline needs policy 'flush' and stage 0 or 1"
            )
        self.mesh = mesh
        self.schedule = schedule
        self.share = Share(model, mesh.pp, schedule, costs, recipe.precision.dtype)
        super().__init__(self.share.model, mesh.dp, recipe, self._over_stages(spread or Spread(mesh.tp)))
        given = (self.model, mesh.dp, recipe, seed)
        self.data: DataParallel | ZeRO
        if zero_stage:
            apart = self.share.copies.displaced
            self.data = ZeRO(*given, zero_stage, shards=shards, spread=self.spread, memory=memory, apart=apart)
        else:
            self.data = DataParallel(*given, spread=self.spread, memory=memory)
        self.update = self.data.update
        self._batch: list[MicroBatch] = []
        self._passes = Passes(self.share, schedule, self.update.masters, times)
        self.executor = self._passes.executor

    def _over_stages(self, inside: Spread) -> Spread:
        """How the model is spread over all ranks, given how a stage is spread over the ranks that share it."""
        mesh, counted = self.mesh, self.share.copies.counted
        cut_further = any(mesh.sizes[axis] > 1 for axis in ("ep", "sp", "tp"))
        return replace(
            inside,
            comm=mesh.comm,
            model=mesh.group("pp", "ep", "sp", "tp") if cut_further else mesh.pp,
            counted=lambda name: name in counted and inside.counted(name),
        )

    # -- training -------------------------------------------------------------------------------------

    def backward(self, windows: Array, scale: float, noise: Noise | None = None, last: bool = True) -> float:
        """See Method. Collects micro-batches; with the last, runs them and returns the loss summed over the step.

        Raises:
            ArgumentError: the step has more or fewer micro-batches than the schedule.
        """
        self._batch.append(MicroBatch(*self.model.examples(windows), scale * self.update.scale, noise))
        if not last:
            return 0.0
        batch, self._batch = self._batch, []
        total = self._passes.train(batch)
        self.reduce()
        return total

    def reduce(self) -> None:
        """Sum the gradients of copies over pp, and all gradients over dp.

        Copies come last, when all ranks of dp have the same sums. With ZeRO each would have only a chunk of them by
        then: so there copies come first, and what is displaced is a unit of its own, cut alike everywhere.
        """
        if isinstance(self.data, ZeRO):
            self.share.copies.sum()
            self.data.reduce()
        else:
            self.data.reduce()
            self.share.copies.sum()

    def step(self, learning_rate: float) -> bool:
        """See Method."""
        return self.data.step(learning_rate)

    def restore(self, vectors: Mapping[str, Sequence[Shard]], numbers: Mapping[str, float]) -> None:
        """See Learner."""
        self.data.restore(vectors, numbers)

    # -- forward alone ----------------------------------------------------------------------------------

    def loss(self, windows: Array) -> float:
        """See Learner. All ranks of pp have the same windows, which run as micro-batches."""
        return self._passes.loss(windows)

    def logits(self, tokens: Array) -> Array:
        """See Learner. All ranks of pp get them."""
        return self._passes.logits(tokens)
