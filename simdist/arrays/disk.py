"""Disk: arrays whose memory is a file."""

from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from simdist.arrays.kind import kind_of

__all__ = ["on_disk"]


def on_disk(x: Any, folder: Path | None) -> Any:
    """A copy of x in a memory-mapped file that no other process can open, deleted along with the array.

    The system reads and writes the file as the array is used, and may reuse the array's memory in between. The
    file has no name, so nothing of it remains, however the process ends.

    Args:
        x: any array; an empty one or a phantom is copied without a file.
        folder: a folder on the disk to use; None for the system's folder of temporary files.

    Raises:
        OSError: there is no such folder, or the disk is full.
    """
    if x.size == 0 or kind_of(x) == "phantom":
        return x.copy()
    with TemporaryFile(dir=folder) as file:
        x.tofile(file)  # written in full now, so that a full disk fails here and not during a step
        return np.asarray(np.memmap(file, x.dtype, "r+", shape=x.shape))
