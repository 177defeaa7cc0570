"""Plan options: those common to `plan` and `predict`, which predict runs without executing them."""

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from simdist.cli.settings import as_words, given_options
from simdist.cluster import presets
from simdist.errors import ArgumentError
from simdist.launch import command_words
from simdist.planning import Workbench
from simdist.training import Config, merged, read_toml

__all__ = ["add_where", "command", "given_of", "left_out"]

_LONG = 1024
"""Tokens of a window from which on the scores of attention are most of a block's activations."""

_OPEN: dict[str, Any] = {"dp": 0, "tp": 1, "pp": 1, "sp": 1, "ep": 1, "micro_batches": 1, "zero": 0, "shards": 0}
_OPEN |= {"sequence_parallel": False, "ulysses": False, "schedule": None, "recompute": "none"}
"""The settings that a search may choose, and the values that need not be printed."""
_OF_NUMBERS = ("device", "device_path", "validation_windows", "sample_bytes", "checkpoint_every", "check_every")
"""Settings in config files of runs with data that phantoms do not use."""


def add_where(parser: argparse.ArgumentParser) -> Any:
    """The options for the cluster and the ranks of a plan."""
    where = parser.add_argument_group("where")
    where.add_argument("--cluster", required=True, metavar="NAME", help=f"{', '.join(presets())}; a .toml")
    where.add_argument("--ranks", type=int, required=True, metavar="N", help="number of its devices to use")
    where.add_argument("--config", metavar="FILE", help="TOML of the options below")
    where.add_argument(
        "--execute", action="store_true", help="also execute it on virtual ranks; this takes minutes with many layers"
    )
    return where


def given_of(args: argparse.Namespace) -> dict[str, Any]:
    """The given settings of the run."""
    told = {} if args.config is None else read_toml(args.config)
    told = {name: value for name, value in told.items() if name not in _OF_NUMBERS}
    given = {"model": "gpt"} | merged(told, given_options(args))
    if given.get("device", "phantom") != "phantom":
        raise ArgumentError(f"device is {given['device']}; plans need device phantom")
    return given


def left_out(given: Mapping[str, Any], config: Config, bench: Workbench) -> list[str]:
    """Lines on defaults, meant for small models on any machine, that hardly anybody wants on a cluster of GPUs."""
    rate, best = (cluster.device.flops_per_s for cluster in (bench.machine(config), bench.cluster))
    found = []
    if "precision" not in given and rate < best:
        found.append(f"--precision was not given; with bf16 these devices compute {best / rate:.3g} times as fast.")
    if config.model == "gpt" and "flash_attention" not in given and config.context_bytes >= _LONG:
        found.append("--flash-attention was not given; without it all scores and probabilities pass through memory.")
    return found


def command(args: argparse.Namespace, given: Mapping[str, Any], config: Config) -> str:
    """The shell command that executes a plan.

    Args:
        given: the settings that the plan was found with.
    """
    found = {name: getattr(config, name) for name in _OPEN}
    chosen = {name: value for name, value in found.items() if value not in (None, _OPEN[name])}
    words = as_words({**given, **chosen, "device": "phantom"})
    where = ["--world=virtual", f"--cluster={args.cluster}", f"--ranks={args.ranks}"]
    return shlex.join([*command_words(), "train", *where, *words])
