"""Whole training runs: what they are told, what they do, and what they report."""

from simdist.training.config import Config, read_toml
from simdist.training.folder import RunFolder
from simdist.training.progress import Progress
from simdist.training.record import gather_trace
from simdist.training.report import Report, report
from simdist.training.trainer import Line, Trainer

__all__ = [
    "Config",
    "Line",
    "Progress",
    "Report",
    "RunFolder",
    "Trainer",
    "gather_trace",
    "read_toml",
    "report",
]
