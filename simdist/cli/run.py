"""The verb `run`."""

import argparse
from typing import Any

from simdist.launch import launch_script

__all__ = ["add_arguments", "add_survive", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many ranks, and the script with its own arguments."""
    parser.usage = "simdist run [-n N] [--survive] (SCRIPT | -m MODULE) [ARGUMENT …]"
    parser.epilog = (
        "Runs mpirun with the options that let a script run anywhere: as root, with more ranks than cores, and "
        "with the cores divided among the ranks. If one rank fails, the job ends. With --survive a script that "
        "supports it continues when a rank dies; this requires Open MPI 5 or later."
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, metavar="N", help="how many ranks to start (4)")
    add_survive(parser)
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="a module instead of a script"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT", help="what each rank runs with Python")


def add_survive(parser: Any) -> None:
    """The option of both verbs that start ranks."""
    parser.add_argument(
        "--survive", action="store_true", help="go on without ranks that die, if others can (Open MPI 5 or later)"
    )


def execute(args: argparse.Namespace) -> int:
    """Start the ranks and wait for them; the job's exit code."""
    return launch_script(args.ranks, ["-m", *args.module] if args.module else args.command, survive=args.survive)
