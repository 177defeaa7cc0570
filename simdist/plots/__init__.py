"""The pictures: functions that take a record, or numbers, and return a Matplotlib Figure or a Page."""

from simdist.collectives.measurement import Measurement
from simdist.plots.attention_work import attention_work
from simdist.plots.collective import collective_steps
from simdist.plots.consensus import consensus
from simdist.plots.experts import expert_load
from simdist.plots.html import Page, timeline_page
from simdist.plots.loss import loss_curve
from simdist.plots.loss_differences import Losses, loss_differences
from simdist.plots.loss_race import Point, loss_race
from simdist.plots.memory import memory
from simdist.plots.plans import plan_bars
from simdist.plots.schedule import pipeline_schedule
from simdist.plots.shards import shards
from simdist.plots.staleness import staleness
from simdist.plots.sweep import Crossover, crossovers, sweep
from simdist.plots.timeline import timeline
from simdist.plots.traffic import traffic
from simdist.plots.waiting import waiting

__all__ = [
    "Crossover",
    "Losses",
    "Measurement",
    "Page",
    "Point",
    "attention_work",
    "collective_steps",
    "consensus",
    "crossovers",
    "expert_load",
    "loss_curve",
    "loss_differences",
    "loss_race",
    "memory",
    "pipeline_schedule",
    "plan_bars",
    "shards",
    "staleness",
    "sweep",
    "timeline",
    "timeline_page",
    "traffic",
    "waiting",
]
