"""Share: the part of a model that one rank of a pipeline has."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from simdist.arrays import consecutive
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.nn import Model
from simdist.nn import Sequence as Layers
from simdist.parallel.pipeline.copies import Copies
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.split import split
from simdist.parallel.pipeline.stage import Stage
from simdist.parallel.pipeline.text import to_text
from simdist.parallel.pipeline.validate import validate

__all__ = ["Share"]


class Share:
    """A rank's stages, and a model that consists of their layers alone.

        model       | embedding | block 0 | block 1 | block 2 | logits |
        stages      |-- 0 ------|-- 1 ----|-- 2 ----|-- 3 -------------|
        on rank 0 of 2, in a V: stages 0 and 3         its model: embedding, block 2, logits

    Args:
        model: the whole model, not yet bound.
        comm: the ranks of the schedule; all must create this object.
        schedule: the same on all ranks.
        costs: the cost of each layer; if not given, its number of weights, which for most layers is the number of
            multiplications per row.
        dtype: of weights and activations.

    Attributes:
        comm, dtype: as given.
        bounds: the layers of each stage.
        stages: the stages of this rank, by chunk.
        with_weights: for each of them, its layers, counting those of the rank that have parameters.
        model: a model of all their layers; it has each parameter of this rank once.
        copies: the parameters that other ranks have too.

    Raises:
        ScheduleError: the schedule is invalid.
        ArgumentError: there are more stages than layers, or the number of costs or ranks is wrong.
        CollectiveMismatch: on all ranks, if their schedules or stages differ.
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
                f"{schedule.name} is for {schedule.num_ranks} ranks, with costs of {len(costs)} layers; "
                f"there are {comm.size} ranks and {len(layers)} layers"
            )
        self.bounds = split(costs, schedule.num_stages)
        digest = sha256(f"{to_text(schedule)} {self.bounds}".encode()).hexdigest()
        comm.agree(f"pipeline {schedule.name}, rows and stages {digest[:12]}")
        last = schedule.num_stages - 1
        own = schedule.placement[comm.rank]
        self.stages = [
            Stage(layers[self.bounds[s]], first=s == 0, loss=model.loss if s == last else None, dtype=dtype)
            for s in own
        ]
        counts = [sum(bool(layer.parameters) for layer in stage.layers.layers) for stage in self.stages]
        self.with_weights = consecutive(counts)
        self.model = model.of(Layers(layer for s in own for layer in layers[self.bounds[s]]))
        names = [
            list(dict.fromkeys(p.name for s in stages for layer in layers[self.bounds[s]] for p in layer.parameters))
            for stages in schedule.placement
        ]
        self.copies = Copies(names, list(self.model.parameters), comm)
        self.comm = comm
        self.dtype = dtype
