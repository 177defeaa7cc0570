"""Disk: arrays whose memory is a file."""

from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from simdist.arrays.kind import kind_of

__all__ = ["on_disk"]


def on_disk(x: Any, folder: Path | None) -> Any:
    """A copy of x in a memory-mapped file that no other process can open, deleted along with the array.

    The system reads and writes the file as the array is used, and gives its memory to others in between. The
    file has no name, so nothing of it is left, however the process ends.

    Args:
        x: any array; of one without items or without numbers the copy is no file.
        folder: on the disk to use; None for the system's own for temporary files.

    Raises:
        OSError: there is no such folder, or no room in it.
    """
    if x.size == 0 or kind_of(x) == "phantom":
        return x.copy()
    with TemporaryFile(dir=folder) as file:
        x.tofile(file)  # all of it is written now: a disk that is full says so here, and not in the midst of a step
        return np.asarray(np.memmap(file, x.dtype, "r+", shape=x.shape))
