"""Batches: which windows each step trains on, worked out by every rank for itself."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simdist.arrays import partition
from simdist.data.corpus import Bytes, Split

__all__ = ["Batches"]


@dataclass(frozen=True)
class Batches:
    """The global batch of any step, and each rank's part of it.

    A batch hangs on the seed and the step alone, through a counter-based generator: no rank has to keep
    count or to ask another, any number of ranks trains on the same batches, and a run can go on anywhere.

    Args:
        split: the windows to draw from, each as likely as another, with replacement.
        global_batch_size: how many windows all ranks together train on in a step.
        seed: at least 0.
    """

    split: Split
    global_batch_size: int
    seed: int

    def numbers(self, step: int) -> npt.NDArray[np.int64]:
        """The numbers of the windows of this step's global batch, shape (global_batch_size,)."""
        # The counter's last word is the step; one batch takes far fewer than the 2**192 draws below it.
        generator = np.random.Generator(np.random.Philox(key=[self.seed, 0], counter=[0, 0, 0, step]))
        return generator.integers(self.split.num_windows, size=self.global_batch_size)

    def part(self, step: int, rank: int, ranks: int) -> Bytes:
        """The windows that `rank` of `ranks` trains on: its run of the global batch, which may be empty.

        Runs differ by one window at most, so a rank's gradient must weigh as many windows as it has.
        """
        return self.split.windows(self.numbers(step)[partition(self.global_batch_size, ranks)[rank]])
