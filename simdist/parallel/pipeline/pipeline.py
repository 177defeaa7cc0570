"""Pipeline: a model split into stages, and a batch split into micro-batches that pass through them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from simdist.arrays import Array
from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import Model, Noise
from simdist.parallel.buckets import BUCKET_BYTES
from simdist.parallel.data_parallel import Allocate, DataParallel
from simdist.parallel.holding import Shard
from simdist.parallel.method import Method
from simdist.parallel.pipeline.passes import Passes
from simdist.parallel.pipeline.schedule import Schedule, require_schedule
from simdist.parallel.pipeline.share import Share
from simdist.parallel.pipeline.stage import MicroBatch
from simdist.parallel.pipeline.times import Times
from simdist.parallel.recipe import Recipe
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

        zero_stage    gradients over dp                         weights over dp                        of Ψ a rank sends
        1             reduced once, after the last action       gathered once, after the update        2Ψ
        2             of a layer reduced after each B or W      gathered once, after the update        (m+1)Ψ
        3             of a layer reduced after each B or W      of a layer gathered before each F and  3mΨ
                                                                each B or I, and freed after it

    Ψ is what the rank's stages have, and each Ψ counts (dp-1)/dp; m micro-batches pass each stage, half of all where
    pipelines go both ways. So from stage 2 on only this rank's part of the gradients stays between actions, and in
    stage 3 only its part of the weights, but micro-batches multiply what is sent. Therefore DeepSpeed refuses 2 and 3
    here, and torchtitan's FSDP by default does not free weights after forward, as in stage 2. Weights that several
    stages of a rank have, as the tied ones in a V, are reduced and gathered for each.

    Args:
        model: the whole model, not yet bound.
        mesh: has as many ranks along pp as the schedule. All of its ranks must call, here and in every method.
        recipe, seed: as of `DataParallel`.
        schedule: the same on all ranks; it updates weights after the whole batch.
        costs: as of `Share`.
        zero_stage: what the ranks of dp shard: nothing (0), the optimizer's state (1), gradients, too (2), or
            also weights (3).
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
        ArgumentError: the schedule updates weights within a batch, or there is no such zero_stage; also as of `Share`.
        ScheduleError: the schedule is invalid.

    Source: DeepSpeed, `deepspeed/runtime/pipe/engine.py`; torchtitan, `fsdp_reshard_after_forward`; for each stage of
    ZeRO see there.
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
        if not schedule.weights.flushes or zero_stage not in range(4):
            raise ArgumentError(
                f"{schedule.name} with policy {schedule.weights.policy!r} and ZeRO stage {zero_stage}; "
                "a pipeline needs policy 'flush' and stage 0 to 3"
            )
        self.mesh = mesh
        self.schedule = schedule
        self.share = Share(model, mesh.pp, schedule, costs, recipe.precision.dtype)
        super().__init__(self.share.model, mesh.dp, recipe, self._over_stages(spread or Spread(mesh.tp)))
        self.data = self._make_data(seed, zero_stage, shards, memory)
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

    def _make_data(self, seed: int, zero_stage: int, shards: int, memory: Allocate | None) -> DataParallel | ZeRO:
        """What the ranks of dp do with this rank's stages."""
        if not zero_stage:
            return DataParallel(self.model, self.comm, self.recipe, seed, spread=self.spread, memory=memory)
        data = ZeRO(
            self.model,
            self.comm,
            self.recipe,
            seed,
            zero_stage,
            bucket_bytes=BUCKET_BYTES if zero_stage == 1 else 1,  # a stage may begin and end at any layer
            shards=shards,
            spread=self.spread,
            memory=memory,
            apart=self.share.copies.displaced,
        )
        for stage, layers in zip(self.share.stages, self.share.with_weights, strict=True):
            stage.observe = data.of_stage(layers)
        return data

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

        Copies come last, when all ranks of dp have the same sums. With ZeRO each has only its chunks of them by then,
        and what is displaced is a unit of its own, cut alike everywhere. In stage 1 these chunks are put together only
        for the update: so there copies come first.
        """
        data, copies = self.data, self.share.copies
        if isinstance(data, ZeRO) and data.zero_stage == 1:
            copies.sum()
            data.reduce()
        elif isinstance(data, ZeRO):
            data.reduce()
            copies.sum(data.own_gradient)
        else:
            data.reduce()
            copies.sum()

    def zero_gradients(self) -> None:
        """See Learner. Also drops the micro-batches collected so far."""
        self._batch.clear()
        self.data.zero_gradients()

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
