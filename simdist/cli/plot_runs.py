"""Runs: the picture of `simdist plot runs`, from folders that `simdist train` wrote."""

import argparse
import sys
from pathlib import Path

from simdist.cli.picture_file import out_of, write
from simdist.errors import ArgumentError, DataError
from simdist.plots import Losses, loss_differences
from simdist.training import history

__all__ = ["draw"]


def draw(args: argparse.Namespace) -> None:
    """Draw the losses of runs, and the difference of each from the first.

    Raises:
        ArgumentError: no folder is given, or one is given twice.
        DataError: a folder has no losses.
    """
    out, folders = out_of(args, "runs.png"), args.subject[1:]
    if not folders or len(set(folders)) < len(folders):
        raise ArgumentError(f"plot runs takes the folders of different runs, not {folders}")
    names = [Path(folder).name for folder in folders]
    if len(set(names)) < len(names):
        names = folders
    runs = {}
    for name, folder in zip(names, folders, strict=True):
        lines, _ = history(folder, sys.maxsize)
        if not lines:
            raise DataError(f"no losses in {Path(folder) / 'metrics.jsonl'}")
        runs[name] = [Losses(line.step, line.train_loss, line.validation_loss) for line in lines]
    write(loss_differences(runs, width=args.width), out)
