"""The pictures: each a function that reads a record, or figures, and returns a Matplotlib Figure."""

from simdist.plots.collective import collective_steps
from simdist.plots.loss import loss_curve
from simdist.plots.sweep import Crossover, Measurement, crossovers, sweep
from simdist.plots.timeline import timeline
from simdist.plots.traffic import traffic

__all__ = [
    "Crossover",
    "Measurement",
    "collective_steps",
    "crossovers",
    "loss_curve",
    "sweep",
    "timeline",
    "traffic",
]
