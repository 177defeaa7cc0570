"""The verb `doctor`."""

import argparse
import textwrap

from simdist.errors import ArgumentError
from simdist.launch import in_job
from simdist.launch.checkup import checkup

__all__ = ["add_arguments", "execute"]

_WIDTH = 110
_COLUMN = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options, only an epilog."""
    parser.epilog = "The exit code is 1 if a check fails; the fix is printed below it."


def execute(args: argparse.Namespace) -> int:
    """Print each finding as soon as it is made."""
    if in_job():
        raise ArgumentError("doctor inside a job of mpirun; run it without mpirun, it starts ranks itself")
    ill = False
    for what, (words, remedy) in checkup():
        print(_aligned(f"{what:{_COLUMN}}", words), flush=True)
        if remedy:
            ill = True
            print(_aligned(f"{'':{_COLUMN}}! ", remedy), flush=True)
    return int(ill)


def _aligned(head: str, words: str) -> str:
    return textwrap.fill(
        " ".join(words.split()),
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
