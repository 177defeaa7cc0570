"""Tails: the shapes of the values that pass from stage to stage, found before anything is sent."""

from collections.abc import Sequence

import numpy as np

from simdist.arrays import Array, Ledger, recorded, unmetered
from simdist.comm import Communicator
from simdist.nn import auxiliary
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.stage import MicroBatch, Stage

__all__ = ["Tails"]


class Tails:
    """Shapes without their first axis, the micro-batch's; found once for each shape of inputs.

    Each stage in turn runs forward on an empty batch, and its rank tells all others the shape of the output.

    Args:
        schedule: has as many ranks as `comm`.
        comm: all ranks must call.
        stages: this rank's stages, by chunk, their weights bound.
        like, dtype: of activations.
    """

    def __init__(
        self, schedule: Schedule, comm: Communicator, stages: Sequence[Stage], like: Array, dtype: np.dtype
    ) -> None:
        self._comm = comm
        self._last = schedule.num_stages - 1
        self._own = dict(zip(schedule.placement[comm.rank], stages, strict=True))
        self._like = like
        self._dtype = dtype
        self._known: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

    def of(self, inputs: Array) -> list[tuple[int, ...]]:
        """The shape of each stage's input. If it is not known yet, all ranks must call at once.

        Args:
            inputs: of the first stage, shape (n, …).
        """
        tail = tuple(inputs.shape[1:])
        if tail not in self._known:
            with unmetered(), recorded(Ledger()), auxiliary.collected():
                self._known[tail] = self._found(inputs)
        return self._known[tail]

    def _found(self, inputs: Array) -> list[tuple[int, ...]]:
        tails = [tuple(inputs.shape[1:])]
        for number in range(self._last):
            note, like, dtype = "", (self._like if number else inputs), (self._dtype if number else inputs.dtype)
            if number in self._own:
                empty = np.empty_like(like, shape=(0, *tails[-1]), dtype=dtype)
                y, _, _ = self._own[number].forward(empty, MicroBatch(empty, None))
                note = "" if y is None else " ".join(map(str, y.shape[1:]))
            told = next(note for note in self._comm.exchange(note) if note)
            tails.append(tuple(map(int, told.split())))
        return tails
