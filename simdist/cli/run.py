"""The verb `run`."""

import argparse
from typing import Any

from simdist.launch import launch_script

__all__ = ["add_arguments", "add_survive", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many ranks, and the script with its own arguments."""
    parser.usage = "simdist run [-n N] [--survive] (SCRIPT | -m MODULE) [ARGUMENT …]"
    parser.epilog = (
        "It is mpirun with what a script needs to run anywhere: as root, with more ranks than cores, and "
        "with the cores shared out among the ranks. If one rank fails, the job ends. With --survive a script that "
        "can do without a rank goes on when it dies; that takes Open MPI from 5 on."
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, metavar="N", help="how many ranks to start (4)")
    add_survive(parser)
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="a module instead of a script"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT", help="what each rank runs with Python")


def add_survive(parser: Any) -> None:
    """The option that both verbs have which start ranks."""
    parser.add_argument(
        "--survive", action="store_true", help="go on without ranks that die, if the rest can (Open MPI from 5 on)"
    )


def execute(args: argparse.Namespace) -> int:
    """Start the ranks and wait for them; the job's exit code."""
    return launch_script(args.ranks, ["-m", *args.module] if args.module else args.command, survive=args.survive)
