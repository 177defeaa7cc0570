"""Folder: the output files of a run."""

import fcntl
import json
import math
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from simdist.cluster import Cluster, as_toml
from simdist.data import PYTHON
from simdist.errors import ArgumentError, CheckpointError, DataError
from simdist.parallel.pipeline.schedules import FILES
from simdist.parallel.pipeline.text import read
from simdist.trace import Trace
from simdist.training.checkpoint import latest
from simdist.training.config import Config
from simdist.training.report import Report
from simdist.training.trainer import Line

__all__ = ["CHECKPOINTS", "CLUSTER", "RunFolder", "history", "newest_run"]

CHECKPOINTS, CLUSTER, SCHEDULE = "checkpoints", "cluster.toml", "schedule.txt"
REPORT, SAMPLES, TRACE = "report.txt", "samples.txt", "trace.json"
PICTURES = ("loss", "loss_by_time", "timeline", "schedule", "memory", "experts", "waiting", "staleness", "consensus")
"""The names in a run's folder that are needed in several places; pictures are drawn if there is something to draw."""


class RunFolder:
    """A folder with the files of one run.

        config.toml      its settings; `--config` reads it
        schedule.txt     the rows of a pipeline schedule that was given as a file
        cluster.toml     the cluster of virtual ranks; `--cluster` reads it
        log.txt          what the user saw
        metrics.jsonl    the log's lines as JSON objects, written during the run
        checkpoints/     of its steps, if any were asked for
        samples.txt      what the model wrote at the end
        report.txt       the loss that it reached, and its cost
        trace.json       its last steps, for ui.perfetto.dev
        *.png            pictures of the loss, over steps and over time, of the last steps and of what filled memory
                         in them, of the loads of experts, of a pipeline's schedule as executed and as predicted;
                         for an asynchronous run also of who waited, and of staleness or consensus error

    Args:
        path: the folder; created if missing. Files of an earlier run in it are replaced, its results removed.
        lines, log: of the run that this one continues, as `history` gives them.
        again: whether that run's files are in this folder.

    Raises:
        DataError: it cannot be made or written to; from every method that writes.
        ArgumentError: it has checkpoints or the report of an earlier run that this one does not continue, or another
            run is writing to it.
    """

    def __init__(
        self, path: str | Path, config: Config, lines: Sequence[Line] = (), log: str = "", *, again: bool = False
    ) -> None:
        self.path = Path(path)
        if config.data != PYTHON:  # so that the path holds from any working directory
            config = replace(config, data=str(Path(config.data).absolute()))
        rows = read(config.schedule) if (config.schedule or "").endswith(FILES) else ""
        with self.writing():
            self.path.mkdir(parents=True, exist_ok=True)
            if not again and latest(self.path / CHECKPOINTS) is not None:
                raise ArgumentError(f"{path} has checkpoints of an earlier run: resume that, or name another folder")
            if not again and (self.path / REPORT).exists():
                raise ArgumentError(f"{path} has the report of an earlier run: name another folder, or remove this one")
            self._lock()
            self._remove_results()
            if rows:  # kept for a resumed run, as the user's file may change
                (self.path / SCHEDULE).write_text(rows, encoding="utf-8")
                config = replace(config, schedule=str((self.path / SCHEDULE).absolute()))
            (self.path / "config.toml").write_text(config.toml(), encoding="utf-8", errors="replace")
            (self.path / "log.txt").write_text(log, encoding="utf-8")
            (self.path / "metrics.jsonl").write_text("".join(map(_json, lines)))

    @classmethod
    def fresh(cls, name: str, config: Config) -> "RunFolder":
        """The first of runs/name, runs/name-2, runs/name-3, … that does not exist yet; never that of another run."""
        try:
            Path("runs").mkdir(exist_ok=True)
            for i in count(1):
                path = Path("runs") / (name if i == 1 else f"{name}-{i}")
                with suppress(FileExistsError):  # made by an earlier run, or by one that starts just now
                    path.mkdir()
                    break
        except OSError as error:
            raise DataError(f"cannot make a folder in runs: {error.strerror}") from error
        return cls(path, config)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A context for writing to it: DataError if that fails, as on a full disk."""
        try:
            yield
        except OSError as error:
            raise DataError(f"cannot write to the output folder {self.path}: {error.strerror or error}") from error

    def _lock(self) -> None:
        """Keep other runs from writing to it, until `close` or the end of this object: their lines would be mixed."""
        fd = os.open(self.path / "config.toml", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._unlock = weakref.finalize(self, os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = f"{self.path} is being written by another run: wait for its end, or name another folder"
            raise ArgumentError(told) from None
        except OSError:  # a file system without locks
            pass

    def _remove_results(self) -> None:
        """Remove what a run before has left at its end: one that is stopped sooner might not replace it."""
        for name in (REPORT, SAMPLES, TRACE, *(f"{picture}.png" for picture in PICTURES)):
            if (self.path / name).is_file():
                (self.path / name).unlink()

    def close(self) -> None:
        """Let other runs write to it."""
        self._unlock()

    def write_cluster(self, cluster: Cluster) -> None:
        """Write the cluster of virtual ranks."""
        with self.writing():
            (self.path / CLUSTER).write_text(as_toml(cluster), encoding="utf-8")

    def say(self, text: str) -> None:
        """Append to the log what was printed."""
        with self.writing(), (self.path / "log.txt").open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"{text}\n")

    def write_line(self, line: Line) -> None:
        """Add a line to the metrics."""
        with self.writing(), (self.path / "metrics.jsonl").open("a") as metrics:
            metrics.write(_json(line))

    def write_samples(self, samples: Sequence[tuple[bytes, bytes]]) -> None:
        """Write texts by the model, each after its prompt."""
        told = [f"{_text(prompt)}\n--- goes on ---\n{_text(written)}\n" for prompt, written in samples]
        with self.writing():
            (self.path / SAMPLES).write_text("\n======\n".join(told), encoding="utf-8")

    def write_end(self, report: Report, trace: Trace) -> None:
        """Write the report and the record."""
        with self.writing():
            (self.path / REPORT).write_text(f"{report}\n", encoding="utf-8")
            trace.save(self.path / TRACE)


def history(path: str | Path, step: int) -> tuple[list[Line], str]:
    """The lines of a run up to a step, and its log, as far as they exist."""
    path, lines = Path(path), list[Line]()
    try:
        for text in (path / "metrics.jsonl").read_text().splitlines():
            found: dict[str, Any] = json.loads(text)
            known: dict[str, Any] = {name: math.nan if x is None else x for name, x in found.items()}
            if (line := Line(**known)).step <= step:
                lines.append(line)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        pass  # a run that died may have left half a line; the lines are only shown, and change no result
    try:
        log = (path / "log.txt").read_text(encoding="utf-8")
    except (OSError, ValueError):
        log = ""
    return lines, log


def newest_run(root: str | Path = "runs") -> Path:
    """The folder under `root` whose run has written the latest checkpoint.

    Raises:
        CheckpointError: there is none.
    """
    paths = Path(root).glob(f"*/{CHECKPOINTS}/step-*")
    found = [path for path in paths if path.is_dir() and path.suffix != ".tmp"]  # which a crash may leave
    if not found:
        raise CheckpointError(
            f"no run under {root} has a checkpoint: checkpoint_every writes them; resume any other run by its folder"
        )
    return max(found, key=lambda path: path.stat().st_mtime).parent.parent


def _json(line: Line) -> str:
    """A line as JSON, with null for nan."""
    known = {name: x if math.isfinite(x) else None for name, x in line._asdict().items()}
    return json.dumps(known) + "\n"


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
