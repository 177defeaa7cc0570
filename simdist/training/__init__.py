"""Whole training runs: config, trainer, output files and report."""

from simdist.training.config import Config
from simdist.training.folder import RunFolder, history, newest_run
from simdist.training.interrupts import Interrupts
from simdist.training.progress import Progress
from simdist.training.record import gather_trace
from simdist.training.report import Report, report
from simdist.training.settings import merged, read_toml
from simdist.training.trainer import Line, Trainer

__all__ = [
    "Config",
    "Interrupts",
    "Line",
    "Progress",
    "Report",
    "RunFolder",
    "Trainer",
    "gather_trace",
    "history",
    "merged",
    "newest_run",
    "read_toml",
    "report",
]
