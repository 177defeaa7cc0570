"""Pipeline report: the costs of a run's pipeline, as measured, as predicted and by formula."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low
from typing import NamedTuple

from simdist.arrays import partition
from simdist.cluster import Cluster
from simdist.comm import Communicator, Mesh
from simdist.comm.virtual.world import run_virtual
from simdist.parallel import Learner
from simdist.parallel.memory import Prediction
from simdist.parallel.pipeline import (
    Footprint,
    PipeDream,
    Pipeline,
    PipelineRow,
    Simulation,
    Taken,
    compare,
    executions,
    footprints,
    joined,
    mean_memory,
    paper,
    predicted_taken,
    simulate,
    taken,
    validate,
)
from simdist.trace import Trace
from simdist.training.config import Config
from simdist.training.layout import mesh_parts
from simdist.training.methods import CUTTING
from simdist.training.models import build
from simdist.training.pipelines import over_links
from simdist.training.record import gather_json
from simdist.training.trainer import Trainer

__all__ = ["PipelinePrediction", "predicted_pipeline", "taken_by_all"]

_LEGEND = (
    "pipeline: the recorded step of median makespan; predicted by simulating the schedule with the",
    "mean times of that step's own actions, and messages over the cluster's links; formula: the paper's, for stages",
    "that all take the mean of these times, and messages that take none.",
)
_UPDATES = ("Here stages update their weights between actions, each at its own time: measured, and not simulated.",)


class PipelinePrediction(NamedTuple):
    """The predicted cost of a run's pipeline, for the first ranks of all other axes.

    Attributes:
        stages: the cost of one micro-batch on each.
        taken: the cost on each rank of the pipeline.
        messages: how many each sends in a step.
    """

    method: Pipeline | PipeDream
    stages: list[Footprint]
    taken: list[Taken]
    messages: Sequence[int]

    @property
    def legend(self) -> tuple[str, ...]:
        """What the rows of a pipeline mean."""
        return (*_LEGEND, *_UPDATES) if isinstance(self.method, PipeDream) else _LEGEND

    def measured_and_simulated(self, trace: Trace, cluster: Cluster) -> list[Simulation]:
        """The step of median makespan, as measured and as simulated with the mean times of its own actions; empty
        without a record.
        """
        schedule, pp = self.method.schedule, self.method.mesh.pp
        runs = executions(schedule, trace, pp.ranks)
        if not runs:
            return []
        middle = median_low(run.makespan for run in runs)
        measured = next(run for run in runs if run.makespan == middle)
        num_bytes = max(stage.input_bytes for stage in self.stages)
        return [measured, simulate(schedule, over_links(measured.times, cluster, pp.ranks, num_bytes))]

    def rows(self, runs: Sequence[Simulation], took: Sequence[Taken]) -> list[PipelineRow]:
        """All figures of the pipeline, from `measured_and_simulated` and `taken_by_all`; none without a record."""
        if not runs or not took:
            return []
        measured, simulated = runs
        one = measured.schedule
        times = replace(measured.times, overlapped=None)  # a pair takes about the sum, one after the other
        kept = mean_memory(self.stages, one.num_ranks)
        return compare(measured, simulated, took, self.taken, paper(one, times), paper(one, times, kept))

    def memory(self, runs: Sequence[Simulation]) -> dict[str, Prediction]:
        """What this rank holds, in the categories in which that is not as in data parallelism."""
        one, rank = self.method.schedule, self.method.mesh.pp.rank
        mine = self.taken[rank]
        said = paper(one, runs[0].times, mean_memory(self.stages, one.num_ranks)) if runs else None
        found = {"activations": Prediction(round(mine.activation_bytes), None if said is None else said.memory[rank])}
        if isinstance(self.method, PipeDream):
            num_bytes, versions = self.method.weights.nbytes, None if said is None else said.weight_versions[rank]
            found["parameters"] = Prediction(num_bytes * mine.weight_versions, versions and num_bytes * versions)
        return found


def taken_by_all(trainer: Trainer) -> list[Taken]:
    """The cost on each rank of rank 0's pipeline, on rank 0; empty elsewhere. All ranks must call."""
    method = trainer.method
    if not isinstance(method, Pipeline | PipeDream):
        return []
    told = gather_json(trainer.comm, taken(method, trainer.ledger))
    return [Taken(*told[rank]) for rank in method.mesh.pp.ranks] if told else []


def predicted_pipeline(method: Learner, config: Config) -> PipelinePrediction | None:
    """The predicted cost of a step; None without a pipeline."""
    if not isinstance(method, Pipeline | PipeDream):
        return None
    own = partition(config.global_batch_size, method.mesh.sizes["dp"] * method.mesh.sizes["ep"]).largest
    windows = partition(own, config.micro_batches)
    stages = _footprints(method, config, windows.largest)
    took = predicted_taken(method.schedule, stages, [windows.size(k) / windows.largest for k in range(len(windows))])
    return PipelinePrediction(method, stages, took, validate(method.schedule).messages)


def _footprints(method: Pipeline | PipeDream, config: Config, windows: int) -> list[Footprint]:
    """Of each stage. Where tp, sp or ep split its layers, as many virtual ranks build them, without numbers.

    What experts keep depends on where the tokens go: for them this is somewhat too much.
    """
    axes = {axis: method.mesh.sizes[axis] for axis in CUTTING}

    def program(comm: Communicator) -> list[Footprint]:
        model, dtype = build(config, mesh_parts(config, Mesh(comm, **axes))), method.recipe.precision.dtype
        each = [slice(k, k + 1) for k in range(len(model.layers.layers))]
        return footprints(model, each, windows, config.context_bytes + 1, dtype)

    ranks = axes["tp"] * axes["sp"] * axes["ep"]
    found: list[list[Footprint]] = run_virtual(program, ranks, method.mesh.comm.cluster, record=False)[0]
    return [joined(found[0][layers]) for layers in method.share.bounds]
