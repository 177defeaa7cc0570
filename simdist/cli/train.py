"""The verb `train`."""

import argparse
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

from simdist.cli.run import add_survive
from simdist.cli.settings import add_options, as_words, given_options
from simdist.cli.training_job import TrainingJob
from simdist.cluster import find_cluster, presets
from simdist.errors import ArgumentError
from simdist.launch import in_job, launch_script, run, world
from simdist.launch.signals import handled
from simdist.parallel.precision import precision
from simdist.training import Config, Interrupts, merged, newest_run, read_toml
from simdist.training.asynchronous.methods import SURVIVING, asynchronous_methods, check_ranks
from simdist.training.folder import CLUSTER
from simdist.training.layout import mesh_sizes
from simdist.training.models import build
from simdist.training.text import Text, split

__all__ = ["add_arguments", "execute"]

_LATEST = "latest"
_TOLD = ("config", "out", "resume")  # further options to pass on to the ranks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of Config, and those for ranks, files and folders."""
    parser.epilog = (
        "For example: simdist train --ranks 4 --model gpt --zero 2 --steps 100. "
        "Without --ranks it runs on the ranks that mpirun started, or on one. "
        "Equal seeds and batches give equal runs on any number of ranks. "
        "Options on the command line override those of the config file. "
        "SIGUSR1 writes a checkpoint at the end of the step; Ctrl-C does too, and ends the run. "
        "Asynchronous methods, which have no common step, write it as soon as all ranks have stopped."
    )
    parser.usage = "simdist train [--ranks N] [OPTION …]"
    _add_where(parser)
    add_options(parser)


def _add_where(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where")
    where.add_argument(
        "--ranks", type=int, metavar="N", help="start N ranks: MPI processes on this machine, or virtual ones (4)"
    )
    add_survive(where)
    where.add_argument(
        "--world", choices=("mpi", "virtual"), default="mpi", help="real ranks, or virtual ones in this process"
    )
    where.add_argument(
        "--cluster",
        metavar="NAME",
        help=f"machine of virtual ranks: {', '.join(presets())}; a .toml (this-machine, or that of the resumed run)",
    )
    where.add_argument("--config", metavar="FILE", help="TOML of the options below, such as `hidden_width = 128`")
    where.add_argument("--out", metavar="FOLDER", help="folder for the results (a new one under runs/)")
    where.add_argument(
        "--resume",
        nargs="?",
        const=_LATEST,
        metavar="FOLDER",
        help="continue the run in this folder, or the latest under runs/, with its settings except those given here",
    )


def execute(args: argparse.Namespace) -> int:
    """Train, on the ranks of this job or on new ones."""
    # Until another handler is set, SIGUSR1 is ignored: by default it would kill the process.
    with handled([signal.SIGUSR1], signal.SIG_IGN), catch_warnings():
        filterwarnings("ignore", "(overflow|invalid value) encountered", RuntimeWarning)  # the log tells it, once
        return _execute(args)


def _execute(args: argparse.Namespace) -> int:
    if args.resume == _LATEST:
        args.resume = str(newest_run())
    given = given_options(args)
    config = _config(args, given)
    _check(args, config)
    job = TrainingJob(config, args.out, args.resume)
    if args.world == "virtual":
        return _train_virtually(job, 4 if args.ranks is None else args.ranks, _cluster(args))
    if args.ranks is not None and not in_job():
        # Report errors once, and not from each rank.
        split(config)
        build(config)
        _check_ranks(config, args.ranks)
        where = [f"--{name}={getattr(args, name)}" for name in _TOLD if getattr(args, name) is not None]
        words = ["-m", "simdist", "train", *as_words(given), *where]
        return launch_script(args.ranks, words, heed=Interrupts().signals, survive=args.survive)
    comm = world()
    if args.ranks not in (None, comm.size):
        raise ArgumentError(f"--ranks is {args.ranks} inside a job of {comm.size} ranks; leave it out here")
    return job.train(comm)


def _config(args: argparse.Namespace, given: Mapping[str, Any]) -> Config:
    """The settings given; the others are those of the config file, of the run that is resumed, or the defaults."""
    told: dict[str, Any] = {} if args.resume is None else read_toml(Path(args.resume) / "config.toml")
    if args.config is not None:
        told = merged(told, read_toml(args.config))
    return Config(**merged(told, given))


def _check(args: argparse.Namespace, config: Config) -> None:
    """Raise ArgumentError if the world, the cluster or the folders do not go with the config, or with each other."""
    virtual, phantom = args.world == "virtual", config.device == "phantom"
    if args.survive and config.method not in SURVIVING:
        raise ArgumentError(f"survive is on, and method {config.method}; needs {', '.join(SURVIVING)}")
    if args.survive and virtual:
        raise ArgumentError("survive is on, and world virtual, in which no rank dies; survive needs --world mpi")
    if phantom and args.resume is not None:
        raise ArgumentError("device phantom, and resume; a checkpoint has numbers, and phantoms have none")
    if phantom and not virtual:
        raise ArgumentError("device phantom, and world mpi; that is for --world virtual")
    if args.out == "":  # as of a variable that is not set
        raise ArgumentError("out is empty; needs the name of a folder")
    if args.cluster is not None and not virtual:
        raise ArgumentError(f"cluster is {args.cluster}; that is for --world virtual")


def _train_virtually(job: TrainingJob, ranks: int, name: str) -> int:
    """On virtual ranks of this process, which read the text once for all of them."""
    cluster, config = find_cluster(name), job.config
    if in_job():
        raise ArgumentError("--world virtual inside an mpirun job; start it without mpirun")
    _check_ranks(config, ranks)
    text = Text(config)
    machine = cluster.computing_in(precision(config.precision).dtype)
    codes = run(replace(job, text=text, cluster=cluster).train, ranks, cluster=machine).results
    return int(max(codes))


def _cluster(args: argparse.Namespace) -> str:
    """The cluster of virtual ranks: as given, or else that of the run that is resumed, or this machine."""
    if args.cluster is not None:
        return str(args.cluster)
    told = None if args.resume is None else Path(args.resume) / CLUSTER
    return str(told) if told and told.exists() else "this-machine"


def _check_ranks(config: Config, ranks: int) -> None:
    if config.method in asynchronous_methods():
        check_ranks(config, ranks)
    elif ranks > 0:
        mesh_sizes(config, ranks)
