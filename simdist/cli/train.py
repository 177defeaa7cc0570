"""The verb `train`."""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from simdist.cluster import Cluster, calibrated
from simdist.comm import Communicator
from simdist.comm.ping_pong import ping_pong
from simdist.data import load
from simdist.environment import num_cores
from simdist.errors import ArgumentError
from simdist.launch import in_job, launch_script, world
from simdist.parallel.precision import precision
from simdist.trace import Trace
from simdist.training import (
    Config,
    Interrupts,
    Line,
    Progress,
    RunFolder,
    Trainer,
    history,
    merged,
    newest_run,
    read_toml,
    report,
)
from simdist.training.config import options
from simdist.training.folder import CHECKPOINTS
from simdist.training.gauge import STEP
from simdist.training.models import build

__all__ = ["add_arguments", "execute"]

_DRAWN_STEPS = 3
_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "NAME"}
_LATEST = "latest"
_SHOWN_BYTES = 60  # of a prompt


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options: one for each field of Config, and where to run and to write."""
    parser.epilog = (
        "Without --ranks it trains on the ranks that mpirun started, or on one. "
        "Equal seeds and batches give equal runs on any number of ranks. "
        "Options on the command line override those of the config file. "
        "SIGUSR1 leaves a checkpoint at the end of the step; Ctrl-C does so too, and ends the run."
    )
    parser.usage = "simdist train [--ranks N] [OPTION …]"
    where = parser.add_argument_group("where")
    where.add_argument("--ranks", type=int, metavar="N", help="start N ranks of this machine under mpirun")
    where.add_argument("--config", metavar="FILE", help="TOML of the options below, such as `hidden_width = 128`")
    where.add_argument("--out", metavar="FOLDER", help="where results go (a new folder under runs/)")
    where.add_argument(
        "--resume",
        nargs="?",
        const=_LATEST,
        metavar="FOLDER",
        help="go on with the run in this folder, or the latest under runs/, as it was told but for the options given",
    )
    kinds: dict[str, Any] = {f.name: f.type for f in fields(Config)}
    groups: dict[str, Any] = {}
    for name, option in options():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        flags = [f"--{name.replace('_', '-')}"] + ([f"--{option.alias}"] if option.alias else [])
        choices = f": {', '.join(option.choices)}" if option.choices else ""
        help = f"{option.help}{choices} ({option.default})".replace("%", "%%")
        groups[option.group].add_argument(
            *flags, dest=name, type=kinds[name], metavar=option.metavar or _METAVARS[kinds[name]], help=help
        )


def execute(args: argparse.Namespace) -> int:
    """Train, on the ranks that there are or on new ones."""
    given = {name: getattr(args, name) for name, _ in options() if getattr(args, name) is not None}
    if args.resume == _LATEST:
        args.resume = str(newest_run())
    told: dict[str, Any] = read_toml(Path(args.resume) / "config.toml") if args.resume else {}
    if args.config:
        told = merged(told, read_toml(args.config))
    config = Config(**merged(told, given))
    if args.ranks is not None and not in_job():
        # What cannot be is told of once, and not by each rank.
        load(config.data)
        build(config)
        return launch_script(args.ranks, ["-m", "simdist", "train", *_words(args, given)], heed=Interrupts().signals)
    comm = world()
    if args.ranks not in (None, comm.size):
        raise ArgumentError(f"--ranks is {args.ranks} inside a job of {comm.size} ranks; leave it out here")
    return _train(comm, config, args.out, args.resume)


def _words(args: argparse.Namespace, given: dict[str, Any]) -> list[str]:
    """The command line again, for the ranks."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    where = ("config", "out", "resume")
    return words + [f"--{name}={getattr(args, name)}" for name in where if getattr(args, name) is not None]


def _train(comm: Communicator, config: Config, out: str | None, resume: str | None) -> int:
    """The whole run on one rank; rank 0 talks and writes. Returns the exit code."""
    with Interrupts() as asked:
        trainer = Trainer(comm, config)
        changes = trainer.resume(Path(resume) / CHECKPOINTS) if resume else []
        folder = _folder(trainer, out, resume) if comm.rank == 0 else None
        trainer.checkpoints = Path(comm.exchange(str(folder.path) if folder else "")[0]) / CHECKPOINTS
        if folder:
            _show(trainer, asked, folder, changes)
        else:
            for _ in trainer.run(asked):
                pass
    if trainer.stopped:
        return 128 + trainer.stopped
    trace = trainer.trace()
    samples = trainer.samples() if config.sample_bytes else []
    # Predictions are for this machine as it is now: messages between all pairs of ranks at once.
    measured = ping_pong(comm, _message_sizes(trainer))
    if folder:
        cluster = calibrated(*measured) if comm.size > 1 else comm.cluster
        _finish(trainer, folder, trace or Trace([], 1), samples, cluster)
    return 0


def _folder(trainer: Trainer, out: str | None, resume: str | None) -> RunFolder:
    """Where this run's files go: into those of the run that it goes on with, unless told otherwise."""
    config, p = trainer.config, trainer.comm.size
    if resume:
        return RunFolder(out or resume, config, *history(resume, trainer.done))
    return RunFolder(out, config) if out else RunFolder.fresh(f"{config.model}-{p}rank{'s' if p > 1 else ''}", config)


def _show(trainer: Trainer, asked: Interrupts, folder: RunFolder, changes: list[str]) -> None:
    """Train, and tell how it goes."""
    with Progress(trainer.config.steps, trainer.done, folder.say) as progress:
        if trainer.done:
            otherwise = f", with {'; '.join(changes)}" if changes else ""
            progress.say(f"goes on after step {trainer.done}{otherwise}")
        progress.say(
            f"bytes of the validation text: entropy {trainer.unigram_entropy:.4f} nats, "
            f"after the byte before {trainer.bigram_entropy:.4f}"
        )
        for line in trainer.run(asked):
            progress.step(line)
            if line:
                folder.write_line(line)
        if trainer.stopped:
            how = f"go on with: simdist train --resume {folder.path}"
            progress.say(f"stopped by {trainer.stopped.name} after step {trainer.done}; {how}")


def _finish(
    trainer: Trainer, folder: RunFolder, trace: Trace, samples: list[tuple[bytes, bytes]], cluster: Cluster
) -> None:
    """Write and tell what came of it."""
    lines, _ = history(folder.path, trainer.done)
    told = report(trainer, lines[-1], trace, cluster)
    nodes, cores = trainer.comm.nodes, num_cores()
    ranks_here = list(nodes).count(trainer.comm.node)
    if ranks_here > cores:
        told.summary.append(f"{ranks_here} ranks share {cores} cores, so measured times include waiting for a core")
    folder.write_end(told, trace)
    words = [f"\n{told}\n"]
    if samples:
        folder.write_samples(samples)
        words.append(f"after {_quoted(samples[0][0][-_SHOWN_BYTES:])} it writes {_quoted(samples[0][1])}\n")
    _draw(folder, lines, trace, trainer)
    words.append(f"in {folder.path}: {', '.join(sorted(p.name for p in folder.path.iterdir()))}")
    folder.say("\n".join(words))
    print("\n".join(words), flush=True)


def _quoted(text: bytes) -> str:
    """In one line."""
    return json.dumps(text.decode("utf-8", errors="replace"), ensure_ascii=False)


def _message_sizes(trainer: Trainer) -> list[int]:
    """In bytes: next to nothing, for the latency, and what the gradient's reduction sends, for the bandwidth."""
    n = trainer.method.model.parameters.size * precision(trainer.config.precision).dtype.itemsize
    return sorted({64, max(4096, n // trainer.comm.size), max(8192, n // 2)})


def _draw(folder: RunFolder, lines: list[Line], trace: Trace, trainer: Trainer) -> None:
    """The loss curve, and the timeline of the last few steps."""
    from matplotlib import use

    use("agg")  # files only: no display is needed
    from simdist import plots

    train, validation = [x.train_loss for x in lines], [x.validation_loss for x in lines]
    levels = {"unigram entropy": trainer.unigram_entropy, "bigram entropy": trainer.bigram_entropy}
    plots.loss_curve([x.step for x in lines], train, validation, levels).savefig(folder.path / "loss.png")
    steps = [s for s in trace if s.name == STEP and s.rank == 0][-_DRAWN_STEPS:]
    if steps:
        figure = plots.timeline(trace, start_s=steps[0].start_s, end_s=steps[-1].end_s)
        figure.savefig(folder.path / "timeline.png")
