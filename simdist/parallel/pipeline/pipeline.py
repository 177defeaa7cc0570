"""Pipeline: a model cut into stages, and a batch into micro-batches that follow each other through them."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from simdist.arrays import Array, partition
from simdist.collectives import all_reduce, broadcast
from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import Model, Noise
from simdist.parallel.data_parallel import DataParallel
from simdist.parallel.holding import Shard
from simdist.parallel.method import Method
from simdist.parallel.pipeline.action import Forward
from simdist.parallel.pipeline.executor import Executor
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.share import Share
from simdist.parallel.pipeline.stage import MicroBatch
from simdist.parallel.pipeline.times import Times
from simdist.parallel.recipe import Recipe
from simdist.parallel.replica import Memory
from simdist.parallel.spread import Spread
from simdist.parallel.zero import ZeRO

__all__ = ["Pipeline", "forwards"]


class Pipeline(Method):
    """The ranks of `mesh.pp` have some stages of a model each; those of `mesh.dp` the same ones, for other windows.

        method = Pipeline(gpt(shape), Mesh(comm, pp=4), recipe, seed, schedule("zb-h1", stages=4, micro_batches=8))
        for windows in micro_batches:           # the same on all ranks of pp
            total += method.backward(windows, scale, noise, last=…)
        method.step(learning_rate)

    The micro-batches of a step are collected, and all go through the pipeline with the last of them. Then gradients
    that several ranks found a part of are added up (see `Copies`), over pp and then over dp, and each rank changes
    what it has. With any schedule whose updates wait for the whole batch the weights are those of one rank, up to
    rounding.

    Args:
        model: the whole, not yet bound.
        mesh: as many ranks along pp as the schedule has. All of its ranks must call, here and in every method.
        recipe, seed: as of `DataParallel`.
        schedule: the same on all ranks; its updates wait for the whole batch.
        costs: as of `Share`.
        zero_stage: 1 where the ranks of dp share the optimizer's state, 0 where each has all of it.
        times: as of `Executor`.
        spread: how an axis inside of a stage, such as tp, cuts the model given.
        memory: makes weights and gradients; `comm.empty` if not given.

    Attributes:
        model: of this rank's layers alone.
        share: its stages.
        executor: what performs the schedule.

    Raises:
        ArgumentError: the schedule updates weights in between, or zero_stage is not 0 or 1; also as of `Share`.
        ScheduleError: the schedule cannot be carried out.
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
        times: Times | None = None,
        spread: Spread | None = None,
        memory: Memory | None = None,
    ) -> None:
        if schedule.weights.policy != "flush" or zero_stage not in (0, 1):
            raise ArgumentError(
                f"{schedule.name} with policy {schedule.weights.policy!r} and ZeRO stage {zero_stage}; "
                "a pipeline needs policy 'flush' and stage 0 or 1"
            )
        self.mesh = mesh
        self.schedule = schedule
        self.share = Share(model, mesh.pp, schedule, costs, recipe.precision.dtype)
        super().__init__(self.share.model, mesh.dp, recipe, self._over_stages(spread or Spread(mesh.tp)))
        given = (self.model, mesh.dp, recipe, seed)
        self._data: DataParallel | ZeRO
        if zero_stage:
            self._data = ZeRO(*given, zero_stage, spread=self.spread, memory=memory)
        else:
            self._data = DataParallel(*given, spread=self.spread, memory=memory)
        self.update = self._data.update
        self._times = times
        self._tails = self.share.tails(schedule, self.update.masters)
        self._batch: list[MicroBatch] = []
        self.executor = self.share.executor(schedule, self.update.masters, times)

    def _over_stages(self, inside: Spread) -> Spread:
        """How the model lies on all ranks, by how a stage lies on those that share it."""
        mesh, counted = self.mesh, self.share.copies.counted
        cut_further = any(mesh.sizes[axis] > 1 for axis in ("ep", "sp", "tp"))
        return Spread(
            mesh.comm,
            mesh.group("pp", "ep", "sp", "tp") if cut_further else mesh.pp,
            inside.sums,
            lambda name: name in counted and inside.counted(name),
        )

    # -- training -------------------------------------------------------------------------------------

    def backward(self, windows: Array, scale: float, noise: Noise | None = None, last: bool = True) -> float:
        """See Method. Does nothing until the last; then returns the loss summed over all of the step's windows.

        Raises:
            ArgumentError: there were more or fewer micro-batches than the schedule has.
        """
        self._batch.append(MicroBatch(*self.model.examples(windows), scale * self.update.scale, noise))
        if not last:
            return 0.0
        batch, self._batch = self._batch, []
        if len(batch) != self.schedule.num_micro_batches:
            raise ArgumentError(
                f"{len(batch)} micro-batches on rank {self.mesh.comm.rank}; "
                f"{self.schedule.name} has {self.schedule.num_micro_batches}"
            )
        total = self._total(self.executor, batch)
        self.share.copies.sum()
        self._data.reduce()
        return total

    def step(self, learning_rate: float) -> bool:
        """See Method."""
        return self._data.step(learning_rate)

    def restore(self, vectors: Mapping[str, Sequence[Shard]], numbers: Mapping[str, float]) -> None:
        """See Method."""
        self._data.restore(vectors, numbers)

    # -- forward alone ----------------------------------------------------------------------------------

    def loss(self, windows: Array) -> float:
        """See Method. All ranks of pp have the same windows, which go through as micro-batches."""
        parts = partition(len(windows), self.schedule.num_micro_batches)
        batch = [MicroBatch(*self.model.examples(windows[part])) for part in parts]
        return self._total(self._forwards, batch)

    def logits(self, tokens: Array) -> Array:
        """See Method. The ranks of pp all get them."""
        outputs = self._forward.run([MicroBatch(tokens, None)], self._tails.of(tokens)).outputs
        found = outputs[0].copy() if outputs else None  # a view of all tokens' until now
        notes = self.mesh.pp.exchange("" if found is None else " ".join([found.dtype.name, *map(str, found.shape)]))
        root = next(rank for rank, note in enumerate(notes) if note)
        dtype, *shape = notes[root].split()
        if found is None:
            found = np.empty_like(self.update.masters, shape=tuple(map(int, shape)), dtype=np.dtype(dtype))
        broadcast(found, self.mesh.pp, root)
        return found

    @cached_property
    def _forwards(self) -> Executor:
        return self._executor(forwards(self.schedule, self.schedule.num_micro_batches))

    @cached_property
    def _forward(self) -> Executor:
        return self._executor(forwards(self.schedule, 1))

    def _executor(self, schedule: Schedule) -> Executor:
        return self.share.executor(schedule, self.update.masters, self._times)

    def _total(self, executor: Executor, batch: Sequence[MicroBatch]) -> float:
        """The loss summed over all micro-batches, told to all ranks of pp."""
        total = np.array([executor.run(batch, self._tails.of(batch[0].inputs)).loss])
        all_reduce(total, self.mesh.pp)
        return float(total[0])


def forwards(schedule: Schedule, micro_batches: int) -> Schedule:
    """What is left of a schedule if so many of its micro-batches only go forward."""
    rows = [
        [
            part
            for action in row
            for part in action.parts
            if isinstance(part, Forward) and part.micro_batch < micro_batches
        ]
        for row in schedule.rows
    ]
    return Schedule(f"{schedule.name}, forward", rows, schedule.placement, micro_batches)
