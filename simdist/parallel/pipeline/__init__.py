"""Pipelines: schedules as data, which are validated, simulated and executed.

`simdist.parallel.pipeline.formulas` has the papers' bubbles and memory.
"""

from simdist.parallel.pipeline.action import (
    Action,
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Overlapped,
    Part,
    Value,
)
from simdist.parallel.pipeline.cost import LayerCost, measured_costs, modelled_costs, stage_times, zero_bubble_layer
from simdist.parallel.pipeline.executor import Executor
from simdist.parallel.pipeline.footprint import Footprint, footprints, joined
from simdist.parallel.pipeline.memory import Memory
from simdist.parallel.pipeline.peaks import Peaks, peak_bytes, peaks
from simdist.parallel.pipeline.pipedream import PipeDream
from simdist.parallel.pipeline.pipeline import Pipeline
from simdist.parallel.pipeline.record import executed, executions, measured_times
from simdist.parallel.pipeline.replicas import Replicated, pipedream_stages
from simdist.parallel.pipeline.report import PipelineRow, Taken, compare, mean_memory, paper, predicted_taken, taken
from simdist.parallel.pipeline.schedule import Message, Schedule, Step, steps
from simdist.parallel.pipeline.schedules import named, schedule, schedules
from simdist.parallel.pipeline.simulate import Simulation, simulate
from simdist.parallel.pipeline.slices import seq1f1b, terapipe_s
from simdist.parallel.pipeline.split import split
from simdist.parallel.pipeline.stage import MicroBatch, Stage
from simdist.parallel.pipeline.text import load, parse, to_text
from simdist.parallel.pipeline.times import Times
from simdist.parallel.pipeline.validate import ScheduleCosts, validate
from simdist.parallel.pipeline.versions import StageVersions, versions
from simdist.parallel.pipeline.weights import Weights

__all__ = [
    "Action",
    "Backward",
    "BackwardInput",
    "BackwardWeight",
    "Executor",
    "Footprint",
    "Forward",
    "LayerCost",
    "Memory",
    "Message",
    "MicroBatch",
    "Overlapped",
    "Part",
    "Peaks",
    "PipeDream",
    "Pipeline",
    "PipelineRow",
    "Replicated",
    "Schedule",
    "ScheduleCosts",
    "Simulation",
    "Stage",
    "StageVersions",
    "Step",
    "Taken",
    "Times",
    "Value",
    "Weights",
    "compare",
    "executed",
    "executions",
    "footprints",
    "joined",
    "load",
    "mean_memory",
    "measured_costs",
    "measured_times",
    "modelled_costs",
    "named",
    "paper",
    "parse",
    "peak_bytes",
    "peaks",
    "pipedream_stages",
    "predicted_taken",
    "schedule",
    "schedules",
    "seq1f1b",
    "simulate",
    "split",
    "stage_times",
    "steps",
    "taken",
    "terapipe_s",
    "to_text",
    "validate",
    "versions",
    "zero_bubble_layer",
]
