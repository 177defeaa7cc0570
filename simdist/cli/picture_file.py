"""Picture file: the file that a verb draws a picture to."""

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from simdist.plots.file import check_format, save

__all__ = ["out_of", "write"]


def out_of(args: argparse.Namespace, default: str | Path) -> Path:
    """The file given by -o, or else the default; its name is checked before anything is executed or read."""
    out: Path = args.out or Path(default)
    check_format(out)
    return out


def write(figure: Figure, out: Path) -> None:
    """Write a picture, and say so."""
    save(figure, out)
    print(f"drawn: {out}")
