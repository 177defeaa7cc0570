"""Footprint: the memory and time of a micro-batch on a stage, action by action, found with phantom arrays.

             F            B                  F            I            W
during    its peak     its peak           its peak     its peak     its peak
after     all          nothing            all          some, for W  nothing
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, Ledger, hold, metered, phantom, recorded
from simdist.nn import Model, Noise
from simdist.parallel.pipeline.executor import Unheard
from simdist.parallel.pipeline.memory import Level
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.stage import MicroBatch, Stage

__all__ = ["Footprint", "footprints", "joined", "peak_bytes"]


class Footprint(NamedTuple):
    """The memory and time of one micro-batch on a stage.

    Attributes:
        input_bytes: of the input from the previous stage, and of the gradient sent back.
        levels: letter of an action -> bytes of activations during and after it.
        working: letter of an action -> the most bytes of activations and of what passes between layers, together.
        text_bytes: of the batch's text that this stage reads: part of one array, which lives as long as the batch.
        loss_bytes: of what the loss, if the stage has it, keeps until backward is through all layers.
        buffer_bytes: the most that passes between its layers, its input and output included.
        scratch_bytes: the most that collectives within its layers take, beside what they work on.
        seconds: letter of an action -> how long it takes; empty without a clock.
    """

    input_bytes: int
    levels: Mapping[str, Level]
    working: Mapping[str, float]
    text_bytes: int = 0
    loss_bytes: int = 0
    buffer_bytes: int = 0
    scratch_bytes: int = 0
    seconds: Mapping[str, float] = MappingProxyType({})


def footprints(
    model: Model,
    bounds: Sequence[slice],
    num_windows: int,
    length: int,
    dtype: np.dtype,
    clock: Callable[[], float] | None = None,
) -> list[Footprint]:
    """The footprint of each stage, from a ledger and phantom arrays: what layers keep for backward.

    Args:
        model: stays bound to phantoms. Where its layers are split over ranks, all of these must call.
        bounds: the layers of each stage.
        num_windows, length: the shape of a micro-batch.
        dtype: of weights and activations.
        clock: a virtual rank's clock, to find seconds too.
    """
    size, last = model.parameters.size, len(bounds) - 1
    model.parameters.bind(phantom(size, dtype), phantom(size, dtype))
    # All byte values, as in real texts: their number decides how many rows of a table are touched.
    text = (np.arange(num_windows * length) % 256).astype(np.uint8).reshape(num_windows, length)
    inputs, targets = model.examples(text)
    batch = MicroBatch(inputs, targets, 1.0, Noise(0, 0, np.arange(num_windows)))  # for dropout's masks
    found = list[Footprint]()
    shape: tuple[int, ...] = (0,)
    with metered(Unheard()) if clock is None else nullcontext():
        for s, layers in enumerate(bounds):
            loss = model.loss if s == last else None
            stage = Stage(model.layers.layers[layers], first=s == 0, loss=loss, dtype=dtype)
            seen = _Watch(stage, batch, shape, dtype, clock or (lambda: 0.0))
            input_bytes, shape = math.prod(shape) * dtype.itemsize, seen.output
            # What is left after W is text, or memory that ranks share and reuse.
            stays = min(seen.levels["W"].after, text.nbytes) if s in (0, last) else 0
            own = {letter: Level(during - stays, after - stays) for letter, (during, after) in seen.levels.items()}
            working = {letter: most - stays for letter, most in seen.working.items()}
            passing = seen.loss_bytes, seen.buffer_bytes, seen.scratch_bytes
            found.append(Footprint(input_bytes, own, working, round(stays), *passing, seen.seconds if clock else {}))
    return found


class _Watch:
    """Watches a stage go forward and backward on an input of this shape.

    Attributes:
        levels, working: as of `Footprint`, but all include the text.
        seconds, loss_bytes, buffer_bytes, scratch_bytes: as of `Footprint`.
        output: the shape of the stage's output.
    """

    def __init__(
        self, stage: Stage, batch: MicroBatch, shape: tuple[int, ...], dtype: np.dtype, clock: Callable[[], float]
    ) -> None:
        self.levels: dict[str, Level] = {}
        self.working: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        self.output: tuple[int, ...] = ()
        self._stage, self._batch, self._dtype, self._clock = stage, batch, dtype, clock
        self._ledger = Ledger()
        self._kept: list[Any] = []  # the context between two actions
        with recorded(self._ledger):
            self._watch("F", lambda: self._forward(shape))
            of_loss = self._kept[-1][1:]
            self._watch("B", lambda: stage.backward(self._kept.pop(), self._gradient(), batch))
            with_loss = self._ledger.now.of("activations")
            del of_loss
            self.loss_bytes = with_loss - self._ledger.now.of("activations")
            self._watch("F", lambda: self._forward(shape))
            self._watch("I", self._backward_input)
            self._watch("W", lambda: stage.backward_weight(self._kept.pop()))
        self.levels["B"] = Level(self.levels["B"].during, self.levels["W"].after)
        self.buffer_bytes, self.scratch_bytes = (self._ledger.peaks[what] for what in ("buffers", "communication"))

    def _watch(self, letter: str, act: Callable[[], object]) -> None:
        before, start_s = len(self._ledger.moments), self._clock()
        act()
        self.seconds[letter] = self._clock() - start_s
        moments = [*self._ledger.moments[before:], self._ledger.now]
        self.levels[letter] = Level(max(m.of("activations") for m in moments), moments[-1].of("activations"))
        self.working[letter] = max(m.of("activations") + m.of("buffers") for m in moments)

    def _forward(self, shape: tuple[int, ...]) -> None:
        y, _, context = self._stage.forward(None if self._stage.first else self._passing(shape), self._batch)
        self.output = getattr(y, "shape", ())
        self._kept.append(context)

    def _gradient(self) -> Array | None:
        return None if self._stage.loss is not None else self._passing(self.output)

    def _passing(self, shape: tuple[int, ...]) -> Array:
        """What comes from another stage: a buffer, until a layer keeps it."""
        x = phantom(shape, self._dtype)
        hold("buffers", x)
        return x

    def _backward_input(self) -> None:
        self._kept.append(self._stage.backward_input(self._kept.pop(), self._gradient(), self._batch)[1])


def joined(layers: Sequence[Footprint]) -> Footprint:
    """The footprint of a stage from those of its layers: memory and times add up.

    When backward reaches a layer, the layers before it keep all since forward; those after it keep nothing, or what
    W needs. What the loss keeps stays until the end of backward.
    """
    f, i = ([layer.levels[letter].after for layer in layers] for letter in "FI")
    after = {"F": sum(f), "B": 0.0, "I": sum(i), "W": 0.0}
    during = _stacked(layers, lambda layer, letter: layer.levels[letter].during)
    levels = {letter: Level(during[letter], after[letter]) for letter in after}
    working = _stacked(layers, lambda layer, letter: layer.working[letter])
    seconds = {letter: sum(layer.seconds.get(letter, 0.0) for layer in layers) for letter in "FBIW"}
    text_bytes, loss_bytes = sum(layer.text_bytes for layer in layers), sum(layer.loss_bytes for layer in layers)
    most = [max(sizes) for sizes in zip(*((layer.buffer_bytes, layer.scratch_bytes) for layer in layers), strict=True)]
    return Footprint(layers[0].input_bytes, levels, working, text_bytes, loss_bytes, most[0], most[1], seconds)


def _stacked(layers: Sequence[Footprint], most: Callable[[Footprint, str], float]) -> dict[str, float]:
    """By letter, the most that layers keep at once if one of them at a time keeps `most`."""
    f, i = ([layer.levels[letter].after for layer in layers] for letter in "FI")
    own = {letter: [most(layer, letter) for layer in layers] for letter in "FBIW"}
    places = range(len(layers))
    f_before, i_before = ([0.0, *accumulate(kept)] for kept in (f, i))  # of the layers before the k-th
    i_after, of_loss = (
        [0.0, *accumulate(reversed(kept[1:]))][::-1] for kept in (i, [layer.loss_bytes for layer in layers])
    )
    return {
        "F": max(f_before[k] + own["F"][k] for k in places),
        "B": max(f_before[k] + own["B"][k] + of_loss[k] for k in places),
        "I": max(f_before[k] + own["I"][k] + i_after[k] + of_loss[k] for k in places),
        "W": max(i_before[k] + own["W"][k] for k in places),
    }


def peak_bytes(
    schedule: Schedule,
    rank: int,
    stages: Sequence[Footprint],
    sizes: Sequence[float] | None = None,
    working: bool = False,
) -> float:
    """The most bytes of activations that a rank of a schedule keeps at once.

    Args:
        stages: the footprint of one micro-batch on each stage.
        sizes: the size of each micro-batch relative to that; 1 where not given.
        working: whether to count what passes between layers, too.
    """
    before = {"F": "", "B": "F", "I": "F", "W": "I"}
    m = schedule.num_micro_batches
    done = {schedule.stage(rank, part) for action in schedule.rows[rank] for part in action.parts}
    kept = peak = sum(sizes or [1.0] * m) * sum(stages[s].text_bytes for s in done)
    for action in schedule.rows[rank]:
        for part in action.parts:
            stage = stages[schedule.stage(rank, part)]
            own = stage.levels
            most = stage.working[part.letter] if working else own[part.letter].during
            size = 1.0 if sizes is None else sizes[part.micro_batch]
            base = own[before[part.letter]].after if before[part.letter] else 0.0
            peak = max(peak, kept + size * (most - base))
            kept += size * (own[part.letter].after - base)
    return peak
