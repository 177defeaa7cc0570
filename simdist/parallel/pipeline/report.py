"""Report: the cost of a pipeline: measured, predicted and by its paper's formula."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from simdist.arrays import Ledger
from simdist.errors import UnknownNameError
from simdist.parallel.pipeline.footprint import Footprint
from simdist.parallel.pipeline.formulas import Formula, formula
from simdist.parallel.pipeline.memory import Memory
from simdist.parallel.pipeline.peaks import peaks, value_bytes
from simdist.parallel.pipeline.pipedream import PipeDream
from simdist.parallel.pipeline.pipeline import Pipeline
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.simulate import Simulation
from simdist.parallel.pipeline.times import Times
from simdist.parallel.pipeline.validate import validate

__all__ = ["PipelineRow", "Taken", "compare", "mean_memory", "paper", "predicted_taken", "taken"]


class Taken(NamedTuple):
    """The cost of a pipeline on one rank.

    Attributes:
        in_flight: the most micro-batches kept at once; one kept on one of v chunks counts 1/v.
        activation_bytes: the most bytes of activations.
        weight_versions: the most versions of its weights at once.
        sent_bytes: to other ranks of the pipeline, in one run.
    """

    in_flight: float
    activation_bytes: float
    weight_versions: int
    sent_bytes: float


class PipelineRow(NamedTuple):
    """One figure three times; `formula` is None where there is none."""

    what: str
    measured: float
    predicted: float
    formula: float | None


def taken(method: Pipeline | PipeDream, ledger: Ledger) -> Taken:
    """The cost on this rank, after a run with this ledger."""
    kept = method.weight_versions if isinstance(method, PipeDream) else 1
    executor = method.executor
    return Taken(executor.in_flight, ledger.peaks["activations"], kept, executor.messages.sent_bytes)


def predicted_taken(
    schedule: Schedule, stages: Sequence[Footprint], sizes: Sequence[float] | None = None
) -> list[Taken]:
    """The predicted cost on each rank. Arguments as of `peaks`."""
    report, most = validate(schedule), peaks(schedule, stages, sizes)
    found = []
    for rank, row in enumerate(schedule.steps):
        values = [message.value for step in row for message in step.sends]
        sent = sum(value_bytes(stages, value) * (sizes[value.micro_batch] if sizes else 1) for value in values)
        versions = max(report.weight_versions[rank], default=1)
        found.append(Taken(report.in_flight[rank], most[rank].activations, versions, sent))
    return found


def paper(schedule: Schedule, times: Times | None = None, memory: Memory | None = None) -> Formula | None:
    """The figures of a schedule's paper, for the mean times of the stages.

    Args:
        times: as of `simulate`.
        memory: M_B and M_W; 1 where not given.

    Returns:
        the figures, as in the table of `simdist.parallel.pipeline.formulas`; None where there is no formula.
    """

    def mean(given: float | Sequence[float]) -> float:
        return given if isinstance(given, (int, float)) else fmean(given) / schedule.share

    times = times or Times()
    forward, inputs, weights = map(mean, (times.forward, times.backward_input, times.backward_weight))
    if times.backward is not None:  # what it takes beside the half that others wait for
        weights = max(0.0, mean(times.backward) - inputs)
    try:
        return formula(
            schedule.name,
            stages=schedule.num_ranks,
            micro_batches=schedule.num_micro_batches,
            times=Times(forward, inputs, weights, 0.0, times.overlapped),
            memory=memory,
            chunks=max(map(len, schedule.placement)),
        )
    except UnknownNameError:
        return None


def mean_memory(stages: Sequence[Footprint], ranks: int) -> Memory:
    """M_B and M_W in bytes: the mean over p-th parts of the model."""
    return Memory(*(sum(stage.levels[letter].after for stage in stages) / ranks for letter in "FI"))


def compare(
    measured: Simulation,
    predicted: Simulation,
    took: Sequence[Taken],
    promised: Sequence[Taken],
    said: Formula | None = None,
    said_bytes: Formula | None = None,
) -> list[PipelineRow]:
    """All figures of a run: times and bubbles, then rank by rank.

    Args:
        measured, predicted: the run as executed, and as simulated.
        took, promised: the measured and the predicted cost on each rank.
        said, said_bytes: the paper's figures, with memory in micro-batches and in bytes.
    """
    rate, of_all = (said.bubble_rate, said.makespan_rate) if said is not None and said.filled else (None, None)
    rows = [
        PipelineRow("makespan, s", measured.makespan, predicted.makespan, None),
        PipelineRow("bubble of the makespan", measured.bubble_rate, predicted.bubble_rate, of_all),
        PipelineRow("bubble of the longest rank's span", measured.own_bubble_rate, predicted.own_bubble_rate, rate),
    ]
    for r, (mine, should) in enumerate(zip(took, promised, strict=True)):
        own, own_bytes = (None if p is None else p.memory[r] for p in (said, said_bytes))
        versions = None if said is None else said.weight_versions[r]
        at = f", rank {r}"
        busy = None if of_all is None else 1 - of_all
        rows += [
            PipelineRow(f"utilisation{at}", measured.utilisation(r), predicted.utilisation(r), busy),
            PipelineRow(f"activations, micro-batches{at}", mine.in_flight, should.in_flight, own),
            PipelineRow(f"activations, bytes{at}", mine.activation_bytes, should.activation_bytes, own_bytes),
            PipelineRow(f"weight versions{at}", mine.weight_versions, should.weight_versions, versions),
            PipelineRow(f"bytes sent{at}", mine.sent_bytes, should.sent_bytes, None),
        ]
    return rows
