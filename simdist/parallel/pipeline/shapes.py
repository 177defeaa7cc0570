"""Shapes: those of the values that pass from stage to stage, found before anything is sent."""

import numpy as np

from simdist.arrays import Array, unmetered
from simdist.nn import auxiliary
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.share import Share
from simdist.parallel.pipeline.stage import MicroBatch

__all__ = ["StageShapes"]


class StageShapes:
    """The shape of each stage's input, without its first axis, the micro-batch's; found once for each shape of inputs.

    Each stage in turn runs forward on an empty batch, and its rank tells all others the shape of the output.

    Args:
        share, schedule, like: as of `Passes`.
    """

    def __init__(self, share: Share, schedule: Schedule, like: Array) -> None:
        self._comm, self._dtype = share.comm, share.dtype
        self._last = schedule.num_stages - 1
        self._own = dict(zip(schedule.placement[share.comm.rank], share.stages, strict=True))
        self._like = like
        self._known: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

    def of(self, inputs: Array) -> list[tuple[int, ...]]:
        """The shapes, by stage. If they are not known yet, all ranks must call at once.

        Args:
            inputs: of the first stage, shape (n, …).
        """
        first = tuple(inputs.shape[1:])
        if first not in self._known:
            with unmetered(), auxiliary.collected():
                self._known[first] = self._found(inputs)
        return self._known[first]

    def _found(self, inputs: Array) -> list[tuple[int, ...]]:
        shapes = [tuple(inputs.shape[1:])]
        for number in range(self._last):
            note, like, dtype = "", (self._like if number else inputs), (self._dtype if number else inputs.dtype)
            if number in self._own:
                empty = np.empty_like(like, shape=(0, *shapes[-1]), dtype=dtype)
                y, _, _ = self._own[number].forward(empty, MicroBatch(empty, None))
                note = "" if y is None else " ".join(map(str, y.shape[1:]))
            told = next(note for note in self._comm.exchange(note) if note)
            shapes.append(tuple(map(int, told.split())))
        return shapes
