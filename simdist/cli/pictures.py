"""Pictures: the figures that a training run writes to its folder."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from pathlib import Path

from matplotlib.figure import Figure

from simdist import plots
from simdist.cluster import Cluster
from simdist.parallel.expert import routes
from simdist.trace import Trace
from simdist.training import Line, Trainer
from simdist.training.asynchronous.methods import SERVED
from simdist.training.asynchronous.results import Results
from simdist.training.pipeline_report import predicted_pipeline
from simdist.training.profiler import STEP
from simdist.training.text import Text

__all__ = ["draw", "draw_asynchronous"]

_DRAWN_STEPS = 3


def draw(folder: Path, lines: Sequence[Line], trace: Trace, trainer: Trainer, cluster: Cluster) -> None:
    """Loss over steps and over time, and the timeline and the memory of rank 0 of the last few steps; for a pipeline,
    also its last step as executed, above the same step as predicted on this cluster.
    """
    points = [plots.Point(x.step, x.seconds, x.train_loss) for x in lines]
    figures = _losses(lines, points, trainer.text, trainer.config.method)
    prediction = predicted_pipeline(trainer.method, trainer.config)
    runs = prediction.measured_and_simulated(trace, cluster) if prediction else []
    shown = 1 if runs else _DRAWN_STEPS  # one step of a pipeline leaves room for the names of its actions
    steps = [s for s in trace if s.name == STEP and s.rank == 0][-shown:]
    if steps:
        figures["timeline"] = plots.timeline(trace, start_s=steps[0].start_s, end_s=steps[-1].end_s)
    if trainer.remembered:
        start_s, end_s = trainer.remembered[0][0], trainer.remembered[-1][1]
        figures["memory"] = plots.memory(trainer.ledger.moments, start_s=start_s, end_s=end_s)
    # Phantoms are not routed to particular experts.
    if any(0 < sum(routed.asked) < inf for routed in routes(trace).values()):
        figures["experts"] = plots.expert_load(trace)
    if runs:
        name = runs[0].schedule.name
        traces = {f"{name}, {what}": run.trace() for what, run in zip(("measured", "predicted"), runs, strict=True)}
        figures["schedule"] = plots.pipeline_schedule(traces)
    _save(folder, figures)


def draw_asynchronous(folder: Path, lines: Sequence[Line], begun: int, results: Results, text: Text) -> None:
    """Loss over steps and over time, waiting times, the timeline of a few steps, staleness or consensus error.

    Args:
        begun: the step after which the run resumed; of earlier steps there are only log lines.
    """
    method, trace = results.config.method, results.trace
    points, before = list[plots.Point](), 0
    for x in lines:
        if x.step <= begun:  # a line is the mean of this many losses
            points += [plots.Point(x.step, x.seconds, x.train_loss)] * ((x.step - before) * results.num_workers)
            before = x.step
    points += [plots.Point(*loss) for loss in results.timed_losses]
    figures = _losses(lines, points, text, method)
    if len(trace):
        start_s, end_s = results.shown
        figures["timeline"] = plots.timeline(trace, start_s=start_s, end_s=end_s)
        figures["waiting"] = plots.waiting({method: trace})
    if method in SERVED and results.staleness:
        figures["staleness"] = plots.staleness({method: results.staleness})
    if results.has_consensus:
        figures["consensus"] = plots.consensus({results.config.graph or method: results.record})
    _save(folder, figures)


def _losses(lines: Sequence[Line], points: Sequence[plots.Point], text: Text, method: str) -> dict[str, Figure]:
    """The loss curve, and the losses over steps and time; values that are not finite are left out."""
    levels = {"unigram entropy": text.unigram_entropy, "bigram entropy": text.bigram_entropy}
    train, validation = [x.train_loss for x in lines], [x.validation_loss for x in lines]
    figures = dict[str, Figure]()
    if any(map(isfinite, (*train, *validation))):
        figures["loss"] = plots.loss_curve([x.step for x in lines], train, validation, levels)
    if any(isfinite(p.loss) for p in points):
        figures["loss_by_time"] = plots.loss_race({method: points}, unit="nats a byte")
    return figures


def _save(folder: Path, figures: Mapping[str, Figure]) -> None:
    """Write the figures, whose names are of `PICTURES`."""
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png")
