"""The verb `plan`."""

import argparse
from pathlib import Path

from tqdm import tqdm

from simdist.cli.picture_file import write
from simdist.cli.plan_options import add_where, command, given_of, left_out
from simdist.cli.settings import add_options
from simdist.errors import require_least
from simdist.planning import Workbench, details, headline, overview, run_text, search
from simdist.planning import execute as carried_out
from simdist.planning.space import LONG
from simdist.plots import plan_bars
from simdist.plots.file import check_format

__all__ = ["add_arguments", "execute"]

_PADDED = 1024
"""Megatron-LM pads vocabularies to a multiple of 128 tp, and a node has up to eight devices."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The cluster, and the fixed settings of the run."""
    parser.usage = "simdist plan --cluster NAME --ranks N [OPTION …]"
    parser.epilog = (
        "For example: simdist plan --cluster h100 --ranks 8 --model gpt2-xl --flash-attention --precision bf16 "
        "--batch 16. "
        "Options that you give are fixed. The others among dp, tp, pp, zero, shards, schedule, micro_batches, "
        "chunks, sequence_parallel and recompute are searched in all combinations, with --experts also ep, and for "
        f"windows of {LONG:,} tokens or more sp, with ulysses or ring_attention; given one of these, for all windows. "
        "Ranks that share layers (tp x sp x ep) are tried within a node, unless you give them. "
        "The time of a step is composed of the times of its parts on the modelled cluster. The model "
        "is a GPT unless --model says mlp. The last line is the command that executes the best plan on that cluster, "
        "without data."
    )
    where = add_where(parser)
    where.add_argument("--top", type=int, default=12, metavar="N", help="number of meshes to list (12)")
    where.add_argument("--picture", type=Path, metavar="FILE", help="draw them to FILE: .png, .svg or .pdf")
    add_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Search, and print the best plans."""
    given, bench = given_of(args), Workbench(args.cluster, args.ranks)
    require_least("top", args.top, 1)
    if args.picture is not None:
        check_format(args.picture)
    with tqdm(unit=" ways", leave=False, disable=None) as bar:
        plans = search(given, bench, bar.update)
    shown = (plans.best or plans.too_large)[0]
    print(
        headline(shown.config, bench),
        *left_out(given, shown.config, bench),
        *overview(plans, bench, args.top),
        "",
        sep="\n",
    )
    vocabulary = shown.config.vocabulary
    if vocabulary is not None and vocabulary % 2 and args.ranks % 2 == 0 and "tp" not in given:
        padded = -(-vocabulary // _PADDED) * _PADDED
        print(f"No tp of 2, 4, … divides a vocabulary of {vocabulary:,}, so none was tried: pad it, as with")
        print(f"--vocabulary {padded}, to let tp be searched, too.\n")
    print("the fastest of these:" if plans.best else "the smallest of these:")
    print(*details(shown, bench, carried_out(shown.config, bench) if args.execute else None), sep="\n")
    if "steps" in given:
        print(run_text(shown, bench))
    print()
    print(command(args, given, shown.config))
    if args.picture is not None and plans.best:
        write(plan_bars(plans.best[: args.top], bench), args.picture)
    elif args.picture is not None:
        print(f"not drawn: {args.picture}, because nothing fits")
    return 0
