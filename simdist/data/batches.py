"""Batches: which windows each step trains on, computed by every rank independently."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simdist.arrays import partition
from simdist.data.corpus import Bytes, Split
from simdist.errors import ArgumentError, require_known, require_whole
from simdist.words import counted

__all__ = ["ORDERS", "Batches", "Part"]

ORDERS = ("random", "passes")


class Part(NamedTuple):
    """The windows that a rank trains on in a step, or some of them.

    Attributes:
        windows: shape (n, length), uint8; n may be 0.
        samples: their places in the global batch, shape (n,).
        batch_size: the number of windows in the global batch.
    """

    windows: Bytes
    samples: npt.NDArray[np.int64]
    batch_size: int

    def __repr__(self) -> str:
        return f"<part of a batch: {len(self.windows):,} of {counted(self.batch_size, 'window')}>"

    def micro_batches(self, count: int) -> "list[Part]":
        """Split into this many parts, some of which may be empty."""
        runs = partition(len(self.windows), count)
        return [Part(self.windows[run], self.samples[run], self.batch_size) for run in runs]


@dataclass(frozen=True)
class Batches:
    """The global batch of any step, and each rank's part of it.

    A batch depends only on the seed and the step, through a counter-based generator: ranks need no state and no
    messages, any number of ranks trains on the same batches, and a run can resume at any step.

    Args:
        split: the windows to draw from.
        global_batch_size: the windows that all ranks together train on in a step; at least 1.
        seed: at least 0, and below 2**63.
        order: "random": windows drawn uniformly, with replacement. "passes": the windows that begin
            `stride` bytes apart, each once per epoch, in another order each time; the last batch of an
            epoch has the remainder.
        stride: with order "passes"; at least 1.

    Raises:
        UnknownNameError: there is no such order.
        ArgumentError: a number is not whole, or outside of its limits.
    """

    split: Split
    global_batch_size: int
    seed: int
    order: str = "random"
    stride: int = 1

    def __post_init__(self) -> None:
        require_known("order", self.order, ORDERS)
        for name, least in (("global_batch_size", 1), ("seed", 0), ("stride", 1)):
            require_whole(name, getattr(self, name), least)
        if self.seed >= 1 << 63:  # NumPy would round it to a float
            raise ArgumentError(f"seed is {self.seed}; needs less than 2**63")

    def numbers(self, step: int) -> npt.NDArray[np.int64]:
        """The numbers of the windows of this step's global batch, shape (batch_size,)."""
        if self.order == "passes":
            epoch, run = self._in_epoch(step)
            order = _shuffled(self.seed, epoch, self.split.num_every(self.stride))
            return self.split.every(self.stride, order[run.start : run.stop])
        # The counter's last word is the step; one batch takes far fewer than the 2**192 draws below it.
        generator = np.random.Generator(np.random.Philox(key=[self.seed, 0], counter=[0, 0, 0, step]))
        return generator.integers(self.split.num_windows, size=self.global_batch_size)

    def size(self, step: int) -> int:
        """The number of windows in this step's global batch."""
        if self.order == "random":
            return self.global_batch_size
        return len(self._in_epoch(step)[1])

    def _in_epoch(self, step: int) -> tuple[int, range]:
        """With order "passes", the epoch of this step, and which of the epoch's windows it trains on."""
        size, count = self.global_batch_size, self.split.num_every(self.stride)
        epoch, i = divmod(step, -(-count // size))
        return epoch, range(i * size, min((i + 1) * size, count))

    def part(self, step: int, rank: int, ranks: int) -> Part:
        """The windows that `rank` of `ranks` trains on: its slice of the global batch, which may be empty.

        Slices differ by at most one window, so a rank's mean gradient must be weighted by its number of windows.

        Raises:
            ArgumentError: there is no such step or rank.
        """
        for name, number, least in (("step", step, 0), ("rank", rank, 0), ("ranks", ranks, 1)):
            require_whole(name, number, least)
        if rank >= ranks:
            raise ArgumentError(f"rank is {rank} of {ranks}; needs at least 0 and less than {ranks}")
        numbers = self.numbers(step)
        run = partition(len(numbers), ranks)[rank]
        return Part(self.split.windows(numbers[run]), np.arange(run.start, run.stop), len(numbers))


@lru_cache(maxsize=1)
def _shuffled(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """0 … count-1 in the order of this epoch."""
    return np.random.Generator(np.random.Philox(key=[seed, 1], counter=[0, 0, 0, epoch])).permutation(count)
