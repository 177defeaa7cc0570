"""Share: one rank's part of a model in a pipeline."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from simdist.arrays import Array
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.nn import Model
from simdist.nn import Sequence as Layers
from simdist.parallel.pipeline.copies import Copies
from simdist.parallel.pipeline.executor import Executor
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.split import split
from simdist.parallel.pipeline.stage import Stage
from simdist.parallel.pipeline.tails import Tails
from simdist.parallel.pipeline.text import to_text
from simdist.parallel.pipeline.times import Times
from simdist.parallel.pipeline.validate import validate

__all__ = ["Share"]


class Share:
    """A rank's stages, and a model that consists of their layers alone.

        model       | embedding | block 0 | block 1 | block 2 | logits |
        stages      |-- 0 ------|-- 1 ----|-- 2 ----|-- 3 -------------|
        on rank 0 of 2, in a V: stages 0 and 3         its model: embedding, block 2, logits

    Args:
        model: the whole, not yet bound.
        comm: one rank for each of the schedule's; all must make it.
        schedule: the same on all ranks.
        costs: of each of the model's layers; if not given, its number of weights, which is what the matrix
            products of most layers cost per row.
        dtype: of weights and activations.

    Attributes:
        bounds: for each stage its layers.
        stages: this rank's, by chunk.
        model: of all of their layers; its parameters are those that this rank has, each once.
        copies: which of them other ranks have as well.

    Raises:
        ScheduleError: the schedule cannot be carried out.
        ArgumentError: there are more stages than layers, another number of costs than of layers, or another number of
            ranks than in the schedule.
        CollectiveMismatch: on all ranks, if they were given different schedules or cuts.
    """

    def __init__(
        self, model: Model, comm: Communicator, schedule: Schedule, costs: Sequence[float] | None, dtype: np.dtype
    ) -> None:
        validate(schedule)
        layers = model.layers.layers
        if costs is None:
            costs = [sum(p.size for p in layer.parameters) for layer in layers]
        if len(costs) != len(layers) or comm.size != schedule.num_ranks:
            raise ArgumentError(
                f"{schedule.name} for {schedule.num_ranks} ranks, and costs of {len(costs)} layers; "
                f"there are {comm.size} ranks and {len(layers)} layers"
            )
        self.bounds = split(costs, schedule.num_stages)
        digest = sha256(f"{to_text(schedule)} {self.bounds}".encode()).hexdigest()
        comm.agree(f"pipeline {schedule.name}, {digest[:12]}")
        last = schedule.num_stages - 1
        own = schedule.placement[comm.rank]
        self.stages = [
            Stage(layers[self.bounds[s]], first=s == 0, loss=model.loss if s == last else None, dtype=dtype)
            for s in own
        ]
        self.model = model.of(Layers(layer for s in own for layer in layers[self.bounds[s]]))
        names = [
            list(dict.fromkeys(p.name for s in stages for layer in layers[self.bounds[s]] for p in layer.parameters))
            for stages in schedule.placement
        ]
        self.copies = Copies(names, list(self.model.parameters), comm)
        self._comm = comm
        self._dtype = dtype

    def executor(self, schedule: Schedule, like: Array, times: Times | None) -> Executor:
        """What performs a schedule of this placement on these stages; `like` is of the activations' kind."""
        return Executor(schedule, self._comm, self.stages, like, self._dtype, times)

    def tails(self, schedule: Schedule, like: Array) -> Tails:
        """The shapes of what passes between the stages."""
        return Tails(schedule, self._comm, self.stages, like, self._dtype)
