"""The verb `run`."""

import argparse

from simdist.launch import launch_script

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many ranks, and the script with its own arguments."""
    parser.usage = "simdist run [-n N] (SCRIPT | -m MODULE) [ARGUMENT …]"
    parser.epilog = (
        "It is mpirun with what a script needs to run anywhere: as root, with more ranks than cores, and "
        "with the cores shared out among the ranks. If one rank fails, the job ends."
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, metavar="N", help="how many ranks to start (4)")
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="a module instead of a script"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT", help="what each rank runs with Python")


def execute(args: argparse.Namespace) -> int:
    """Start the ranks and wait for them; the job's exit code."""
    return launch_script(args.ranks, ["-m", *args.module] if args.module else args.command)
