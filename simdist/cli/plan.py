"""The verb `plan`."""

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from simdist.cli.settings import add_options, as_words, given_options
from simdist.cluster import find_cluster, presets
from simdist.errors import ArgumentError
from simdist.planning import Workbench, details, headline, overview, search
from simdist.planning import execute as carried_out
from simdist.plots import plan_bars
from simdist.plots.file import check_format, save
from simdist.training import Config, merged, read_toml

__all__ = ["add_arguments", "add_where", "bench_of", "command", "execute", "given_of"]

_OPEN: dict[str, Any] = {"dp": 0, "tp": 1, "pp": 1, "micro_batches": 1, "zero": 0}
_OPEN |= {"sequence_parallel": False, "schedule": None, "recompute": "none"}
"""What a search may choose, and what goes without saying."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The cluster, and what is given of the run."""
    parser.usage = "simdist plan --cluster NAME --ranks N [OPTION …]"
    parser.epilog = (
        "What is given is fixed. What is left open of dp, tp, pp, zero, schedule, micro_batches, sequence_parallel and "
        "recompute is tried in all combinations; each step is put together from what its parts take on the modelled "
        "cluster. The model is a GPT unless --model says mlp. The last line is the command that carries the best plan "
        "out there, without numbers."
    )
    where = add_where(parser)
    where.add_argument("--top", type=int, default=12, metavar="N", help="how many meshes to list (12)")
    where.add_argument("--picture", type=Path, metavar="FILE", help="draw them there: .png, .svg or .pdf")
    add_options(parser)


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
    given = {"model": "gpt"} | merged({} if args.config is None else read_toml(args.config), given_options(args))
    if given.get("device", "phantom") != "phantom":
        raise ArgumentError(f"device is {given['device']}; plans are of device phantom")
    return given


def bench_of(args: argparse.Namespace) -> Workbench:
    """Where the run is to be."""
    if args.ranks < 1:
        raise ArgumentError(f"ranks is {args.ranks}; needs at least 1")
    return Workbench(find_cluster(args.cluster), args.ranks)


def execute(args: argparse.Namespace) -> int:
    """Search, and tell."""
    given, bench = given_of(args), bench_of(args)
    if args.top < 1:
        raise ArgumentError(f"top is {args.top}; needs at least 1")
    if args.picture is not None:
        check_format(args.picture)
    with tqdm(unit=" ways", leave=False, disable=not sys.stderr.isatty()) as bar:
        plans = search(given, bench, bar.update)
    shown = (plans.best or plans.too_large)[0]
    print(headline(shown.config, bench), *overview(plans, bench, args.top), "", sep="\n")
    print("the first of these:" if plans.best else "the smallest of these:")
    print(*details(shown, bench, carried_out(shown.config, bench) if args.execute else None), "", sep="\n")
    print(command(args, given, shown.config))
    if args.picture is not None and plans.best:
        save(plan_bars(plans.best[: args.top], bench), args.picture)
        print(f"drawn: {args.picture}")
    return 0


def command(args: argparse.Namespace, given: Mapping[str, Any], config: Config) -> str:
    """What carries a way out, as one types it.

    Args:
        given: the settings that it was found with.
    """
    found = {name: getattr(config, name) for name in _OPEN}
    chosen = {name: value for name, value in found.items() if value not in (None, _OPEN[name])}
    words = as_words({**given, **chosen, "device": "phantom"})
    return shlex.join(
        ["simdist", "train", "--world=virtual", f"--cluster={args.cluster}", f"--ranks={args.ranks}", *words]
    )
