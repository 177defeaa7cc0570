"""The verb `train`."""

import argparse
from dataclasses import fields
from typing import Any

from simdist.cluster import calibrated
from simdist.comm import Communicator
from simdist.comm.ping_pong import ping_pong
from simdist.data import load
from simdist.environment import num_cores
from simdist.errors import ArgumentError
from simdist.launch import in_job, launch_script, world
from simdist.trace import Trace
from simdist.training import Config, Line, Progress, RunFolder, Trainer, read_toml, report
from simdist.training.config import options
from simdist.training.gauge import STEP

__all__ = ["add_arguments", "execute"]

_DRAWN_STEPS = 3
_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "NAME"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options: one for each field of Config, and where to run and to write."""
    parser.epilog = (
        "Without --ranks it trains on the ranks that mpirun started, or on one. "
        "Equal seeds and batches give equal runs on any number of ranks. "
        "Options on the command line override those of the config file."
    )
    parser.usage = "simdist train [--ranks N] [OPTION …]"
    where = parser.add_argument_group("where")
    where.add_argument("--ranks", type=int, metavar="N", help="start N ranks of this machine under mpirun")
    where.add_argument("--config", metavar="FILE", help="TOML of the options below, such as `hidden_width = 128`")
    where.add_argument("--out", metavar="FOLDER", help="where results go (a new folder under runs/)")
    kinds: dict[str, Any] = {f.name: f.type for f in fields(Config)}
    groups: dict[str, Any] = {}
    default = Config()
    for name, option in options():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        flags = [f"--{name.replace('_', '-')}"] + ([f"--{option.alias}"] if option.alias else [])
        help = f"{option.help} ({getattr(default, name)})".replace("%", "%%")
        groups[option.group].add_argument(
            *flags, dest=name, type=kinds[name], metavar=option.metavar or _METAVARS[kinds[name]], help=help
        )


def execute(args: argparse.Namespace) -> int:
    """Train, on the ranks that there are or on new ones."""
    given = {name: getattr(args, name) for name, _ in options() if getattr(args, name) is not None}
    config = Config(**{**(read_toml(args.config) if args.config else {}), **given})
    if args.ranks is not None and not in_job():
        load(config.data)  # so that a text which cannot be read is told of once, and not by each rank
        return launch_script(args.ranks, ["-m", "simdist", "train", *_words(args, given)])
    comm = world()
    if args.ranks not in (None, comm.size):
        raise ArgumentError(f"--ranks is {args.ranks} inside a job of {comm.size} ranks; leave it out here")
    _train(comm, config, args.out)
    return 0


def _words(args: argparse.Namespace, given: dict[str, Any]) -> list[str]:
    """The command line again, for the ranks."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    return words + [f"--{name}={getattr(args, name)}" for name in ("config", "out") if getattr(args, name) is not None]


def _train(comm: Communicator, config: Config, out: str | None) -> None:
    """The whole run on one rank; rank 0 talks and writes."""
    trainer = Trainer(comm, config)
    if comm.rank > 0:
        for _ in trainer.run():
            pass
        trainer.trace()
        ping_pong(comm, _message_sizes(trainer))
        return
    name = f"{config.model}-{comm.size}rank{'s' if comm.size > 1 else ''}"
    folder = RunFolder(out, config) if out else RunFolder.fresh(name, config)
    lines = []
    with Progress(config.steps) as progress:
        for line in trainer.run():
            progress.step(line)
            if line:
                lines.append(line)
                folder.write_line(line)
    trace = trainer.trace() or Trace([], 1)
    # Predictions are for this machine as it is now: messages between all pairs of ranks at once.
    measured = ping_pong(comm, _message_sizes(trainer))
    told = report(trainer, lines[-1], trace, calibrated(*measured) if comm.size > 1 else comm.cluster)
    ranks_here, cores = list(comm.nodes).count(comm.node), num_cores()
    if ranks_here > cores:
        told.summary.append(f"{ranks_here} ranks share {cores} cores, so measured times include waiting for a core")
    folder.write_end(told, trace)
    _draw(folder, lines, trace, trainer.unigram_entropy)
    print(f"\n{told}\n\nin {folder.path}: {', '.join(sorted(p.name for p in folder.path.iterdir()))}", flush=True)


def _message_sizes(trainer: Trainer) -> list[int]:
    """In bytes: next to nothing, for the latency, and what the gradient's reduction sends, for the bandwidth."""
    n, p = trainer.replica.gradient.nbytes, trainer.comm.size
    return sorted({64, max(4096, n // p), max(8192, n // 2)})


def _draw(folder: RunFolder, lines: list[Line], trace: Trace, unigram_entropy: float) -> None:
    """The loss curve, and the timeline of the last few steps."""
    from matplotlib import use

    use("agg")  # files only: no display is needed
    from simdist import plots

    train, validation = [x.train_loss for x in lines], [x.validation_loss for x in lines]
    curve = plots.loss_curve([x.step for x in lines], train, validation, {"unigram entropy": unigram_entropy})
    curve.savefig(folder.path / "loss.png")
    steps = [s for s in trace if s.name == STEP and s.rank == 0][-_DRAWN_STEPS:]
    if steps:
        figure = plots.timeline(trace, start_s=steps[0].start_s, end_s=steps[-1].end_s)
        figure.savefig(folder.path / "timeline.png")
