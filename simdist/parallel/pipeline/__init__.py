"""Pipelines: schedules as data, checked before they run, simulated in time."""

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
from simdist.parallel.pipeline.dataflow import Message, Step, steps
from simdist.parallel.pipeline.memory import Memory
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules import named, schedule, schedules
from simdist.parallel.pipeline.simulate import Simulation, simulate
from simdist.parallel.pipeline.text import parse, to_text
from simdist.parallel.pipeline.times import Times
from simdist.parallel.pipeline.validate import Report, validate
from simdist.parallel.pipeline.versions import StageVersions, versions
from simdist.parallel.pipeline.weights import Weights

__all__ = [
    "Action",
    "Backward",
    "BackwardInput",
    "BackwardWeight",
    "Forward",
    "Memory",
    "Message",
    "Overlapped",
    "Part",
    "Report",
    "Schedule",
    "Simulation",
    "StageVersions",
    "Step",
    "Times",
    "Value",
    "Weights",
    "named",
    "parse",
    "schedule",
    "schedules",
    "simulate",
    "steps",
    "to_text",
    "validate",
    "versions",
]
