"""Folder: what a run leaves behind."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

from simdist.data import PYTHON
from simdist.errors import DataError
from simdist.trace import Trace
from simdist.training.config import Config
from simdist.training.report import Report
from simdist.training.trainer import Line

__all__ = ["RunFolder"]


class RunFolder:
    """A folder with the files of one run.

        config.toml      what it was told; `--config` takes it again
        metrics.jsonl    the log, a JSON object a line, written as it goes
        report.txt       what it reached and cost
        trace.json       its last steps, for ui.perfetto.dev

    Args:
        path: where; made if it is not there. Files of an earlier run in it are replaced.

    Raises:
        DataError: it cannot be made or written to.
    """

    def __init__(self, path: str | Path, config: Config) -> None:
        self.path = Path(path)
        if config.data != PYTHON:  # so that the file says the same wherever it is read
            config = replace(config, data=str(Path(config.data).absolute()))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "config.toml").write_text(config.toml(), encoding="utf-8", errors="replace")
            (self.path / "metrics.jsonl").write_text("")
        except OSError as error:
            raise DataError(f"cannot write to the output folder {self.path}: {error.strerror or error}") from error

    @classmethod
    def fresh(cls, name: str, config: Config) -> "RunFolder":
        """The first of runs/name, runs/name-2, runs/name-3, … that is not there yet."""
        paths = (Path("runs") / (name if i == 1 else f"{name}-{i}") for i in count(1))
        return cls(next(path for path in paths if not path.exists()), config)

    def write_line(self, line: Line) -> None:
        """Add a line to the log."""
        with (self.path / "metrics.jsonl").open("a") as log:
            log.write(json.dumps(line._asdict()) + "\n")

    def write_end(self, report: Report, trace: Trace) -> None:
        """Add the report and the record."""
        (self.path / "report.txt").write_text(f"{report}\n", encoding="utf-8")
        trace.save(self.path / "trace.json")
