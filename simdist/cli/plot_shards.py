"""Shards: the picture of `simdist plot shards`: the part of a GPT that each rank holds, as in training."""

import argparse
from math import prod
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.cli.picture_file import out_of, write
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.launch import run
from simdist.nn import Place
from simdist.plots import shards
from simdist.training import Config
from simdist.training.layout import Layout

__all__ = ["add_arguments", "draw"]

_AXES = {"dp": "replicas", "pp": "pipeline stages of some layers each", "ep": "ranks that split the experts"}
_AXES |= {"sp": "ranks that split the tokens", "tp": "ranks that split each layer"}
_SIZES = {"layers": (2, "transformer blocks"), "model_width": (32, "hidden size"), "heads": (8, "attention heads")}
_SIZES |= {"context": (32, "tokens of a text"), "vocabulary": (256, "number of tokens; tp divides it")}
_SIZES |= {"experts": (0, "experts in each block")}
_WAYS = {
    "sequence_parallel": "with tp: split the tokens between those layers",
    "ulysses": "with sp: Ulysses instead of ring attention",
}


def add_arguments(group: Any) -> None:
    """A mesh and a small GPT, by options of `simdist train`."""
    for axis, words in _AXES.items():
        group.add_argument(f"--{axis}", type=int, default=1, metavar="N", help=f"{words} (1)")
    for name, (size, words) in _SIZES.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=int, default=size, metavar="N", help=f"{words} ({size})")
    for name, words in _WAYS.items():
        group.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=words)


def draw(args: argparse.Namespace) -> None:
    """Draw the shards of this GPT on the virtual ranks of the mesh.

    Raises:
        ArgumentError: the subject has further words, an axis is below 1, or as for `Config`.
    """
    out = out_of(args, "shards.png")
    if len(args.subject) > 1:
        raise ArgumentError(f"plot shards takes only options, not {args.subject[1:]}")
    sizes = {axis: getattr(args, axis) for axis in _AXES}
    if min(sizes.values()) < 1:
        raise ArgumentError(f"axes are {sizes}; each needs at least 1")
    told = {name: getattr(args, name) for name in ("layers", "heads", "vocabulary", "experts")}
    told |= {axis: size for axis, size in sizes.items() if size > 1}
    told |= {name: True for name in _WAYS if getattr(args, name)}
    config = Config(model="gpt", width=args.model_width, context_bytes=args.context, **told)
    found = run(_held, prod(sizes.values()), args=(config,)).results
    write(shards([places for places, _ in found], [own for _, own in found], width=args.width), out)


def _held(comm: Communicator, config: Config) -> tuple[dict[str, Place], Array]:
    """The part of each parameter that this rank holds, and the tokens of a text that it processes."""
    layout = Layout(comm, config)
    parameters = layout.method().model.parameters
    between = config.context_bytes // config.sp // (config.tp if config.sequence_parallel else 1)
    tokens = layout.parts.tokens(between) if layout.parts else np.arange(between)
    return {p.name: p.place for p in parameters}, tokens
