"""The verb `run`."""

import argparse
from typing import Any

from simdist.launch import launch_script

__all__ = ["add_arguments", "add_survive", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The number of ranks, and the script with its arguments."""
    parser.usage = "simdist run [OPTION …] SCRIPT [ARGUMENT …]\n       simdist run [OPTION …] -m MODULE [ARGUMENT …]"
    parser.epilog = (
        "Runs mpirun with options that also work as root and with more ranks than cores, and divides the cores among "
        "the ranks. If one rank fails, the job ends. With --survive a script that supports it continues when a rank "
        "dies; this requires Open MPI 5 or later."
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, metavar="N", help="number of ranks to start (4)")
    add_survive(parser)
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="a module instead of a script"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the Python script that each rank runs"
    )


def add_survive(parser: Any) -> None:
    """The option --survive of both verbs that start ranks."""
    parser.add_argument(
        "--survive", action="store_true", help="continue without ranks that die, if possible (Open MPI 5 or later)"
    )


def execute(args: argparse.Namespace) -> int:
    """Start the ranks and wait for them; returns the job's exit code."""
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    return launch_script(args.ranks, ["-m", *args.module] if args.module else words, survive=args.survive)
