"""Modelled: what the verbs share that tell of runs on a cluster without running them."""

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from simdist.cli.settings import as_words, given_options
from simdist.cluster import find_cluster, presets
from simdist.errors import ArgumentError
from simdist.launch import command_words
from simdist.planning import Workbench
from simdist.training import Config, merged, read_toml

__all__ = ["add_where", "bench_of", "command", "given_of"]

_OPEN: dict[str, Any] = {"dp": 0, "tp": 1, "pp": 1, "micro_batches": 1, "zero": 0, "shards": 0}
_OPEN |= {"sequence_parallel": False, "schedule": None, "recompute": "none"}
"""What a search may choose, and what goes without saying."""
_OF_NUMBERS = ("device", "device_path", "validation_windows", "sample_bytes", "checkpoint_every", "check_every")
"""What the file of a run that had numbers may tell, and phantoms have no use for."""


def add_where(parser: argparse.ArgumentParser) -> Any:
    """The group of options that says where a run is to be."""
    where = parser.add_argument_group("where")
    where.add_argument("--cluster", required=True, metavar="NAME", help=f"{', '.join(presets())}; a .toml")
    where.add_argument("--ranks", type=int, required=True, metavar="N", help="how many of its devices")
    where.add_argument("--config", metavar="FILE", help="TOML of the options below")
    where.add_argument(
        "--execute", action="store_true", help="carry it out on virtual ranks, too; of many layers that takes minutes"
    )
    return where


def given_of(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given of the run."""
    told = {} if args.config is None else read_toml(args.config)
    told = {name: value for name, value in told.items() if name not in _OF_NUMBERS}
    given = {"model": "gpt"} | merged(told, given_options(args))
    if given.get("device", "phantom") != "phantom":
        raise ArgumentError(f"device is {given['device']}; plans are of device phantom")
    return given


def bench_of(args: argparse.Namespace) -> Workbench:
    """Where the run is to be."""
    if args.ranks < 1:
        raise ArgumentError(f"ranks is {args.ranks}; needs at least 1")
    return Workbench(find_cluster(args.cluster), args.ranks)


def command(args: argparse.Namespace, given: Mapping[str, Any], config: Config) -> str:
    """What carries a way out, as one types it.

    Args:
        given: the settings that it was found with.
    """
    found = {name: getattr(config, name) for name in _OPEN}
    chosen = {name: value for name, value in found.items() if value not in (None, _OPEN[name])}
    words = as_words({**given, **chosen, "device": "phantom"})
    where = ["--world=virtual", f"--cluster={args.cluster}", f"--ranks={args.ranks}"]
    return shlex.join([*command_words(), "train", *where, *words])
