"""Footprint: the memory and time of a micro-batch on a stage, action by action, found with phantom arrays.

             F            B                  F            I            W
during    its peak     its peak           its peak     its peak     its peak
after     all          nothing            all          some, for W  nothing
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, Ledger, hold, phantom, recorded, unmetered
from simdist.nn import Model, Noise, Observer, Parameter
from simdist.parallel.pipeline.memory import Level
from simdist.parallel.pipeline.stage import MicroBatch, Stage

__all__ = ["Footprint", "footprints", "joined", "left_bytes", "working_bytes"]


class Footprint(NamedTuple):
    """The memory and time of one micro-batch on a stage.

    Attributes:
        input_bytes: of the input from the previous stage, and of the gradient sent back.
        levels: letter of an action -> bytes of activations during and after it.
        passing: letter of an action -> the most bytes of what passes between layers, input and output included.
        working: letter of an action -> the most bytes of activations, buffers and what collectives take meanwhile,
            together.
        loose: letter of an action -> the bytes of its input, there until its end, that no layer keeps.
        left: B or W -> the bytes of `working`, without those of `loose`, that are left when all gradients are complete.
        text_bytes: of the batch's text that this stage reads: part of one array, which lives as long as the batch.
        scratch_bytes: the most that collectives within its layers take, beside what they work on.
        shared_bytes: of memory that ranks share, which stays, and was first used here.
        seconds: letter of an action -> how long it takes; empty without a clock.
    """

    input_bytes: int
    levels: Mapping[str, Level]
    passing: Mapping[str, float]
    working: Mapping[str, float]
    loose: Mapping[str, float]
    left: Mapping[str, float]
    text_bytes: int = 0
    scratch_bytes: int = 0
    shared_bytes: int = 0
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
    text = np.resize(np.arange(256, dtype=np.uint8), (num_windows, length)).copy()  # so that nothing more is held
    inputs, targets = model.examples(text)
    batch = MicroBatch(inputs, targets, 1.0, Noise(0, 0, np.arange(num_windows)))  # for dropout's masks
    found = list[Footprint]()
    shape: tuple[int, ...] = (0,)
    with unmetered() if clock is None else nullcontext():
        for s, layers in enumerate(bounds):
            loss = model.loss if s == last else None
            stage = Stage(model.layers.layers[layers], first=s == 0, loss=loss, dtype=dtype)
            actions = _Actions(stage, batch, shape, dtype)
            found.append(_watched(actions, text.nbytes if s in (0, last) else 0, clock))
            shape = actions.output
    return found


def _watched(actions: "_Actions", text_bytes: int, clock: Callable[[], float] | None) -> Footprint:
    """The footprint of a stage that reads this much text."""
    levels = dict[str, Level]()
    passing, working, loose, left, seconds = (dict[str, float]() for _ in range(5))
    with recorded(ledger := Ledger()):
        actions.stage.observe = lambda letter: complete
        complete = _Complete(ledger)
        for letter in "FBFIW":
            before, start_s = len(ledger.moments), clock() if clock else 0.0
            x = actions.do(letter)
            if clock:
                seconds[letter] = clock() - start_s
            loose[letter] = ledger.now.of("buffers")
            del x
            moments = [*ledger.moments[before:], ledger.now]
            levels[letter] = Level(max(m.of("activations") for m in moments), moments[-1].of("activations"))
            passing[letter] = max(m.of("buffers") for m in moments)
            shared = moments[-1].of("communication")  # memory that ranks share, and that stays
            working[letter] = max(m.total - min(shared, m.of("communication")) for m in moments)
            if letter in "BW":
                end = complete.moment
                left[letter] = end.total - min(shared, end.of("communication")) - loose[letter]
    levels["B"] = Level(levels["B"].during, levels["W"].after)
    # What is left after W is text, or memory that ranks share and reuse.
    stays = min(levels["W"].after, text_bytes)
    own = {letter: Level(during - stays, after - stays) for letter, (during, after) in levels.items()}
    working, left = ({letter: most - stays for letter, most in each.items()} for each in (working, left))
    in_calls = ledger.peaks["communication"] - shared
    return Footprint(actions.input_bytes, own, passing, working, loose, left, round(stays), in_calls, shared, seconds)


class _Complete(Observer):
    """The moment of a ledger when gradients were last complete."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.moment = ledger, ledger.now

    def gradients_complete(self, parameters: tuple[Parameter, ...]) -> None:
        """See Observer."""
        self.moment = self._ledger.now


class _Actions:
    """The actions of a stage on one micro-batch, whose input has this shape."""

    def __init__(self, stage: Stage, batch: MicroBatch, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.input_bytes = math.prod(shape) * dtype.itemsize
        self.output: tuple[int, ...] = ()  # the shape of its output, after F
        self.stage, self._batch, self._shape, self._dtype = stage, batch, shape, dtype
        self._kept: list[Any] = []  # the context between two actions

    def do(self, letter: str) -> Array | None:
        """An action; returns its input, which the executor has until its end."""
        stage, batch, kept = self.stage, self._batch, self._kept
        if letter == "F":
            x = None if stage.first else self._passing(self._shape)
            y, _, context = stage.forward(x, batch)
            self.output = getattr(y, "shape", ())
            kept.append(context)
            return x
        if letter == "W":
            stage.backward_weight(kept.pop())
            return None
        dy = None if stage.loss is not None else self._passing(self.output)
        if letter == "B":
            stage.backward(kept.pop(), dy, batch)
        else:
            kept.append(stage.backward_input(kept.pop(), dy, batch)[1])
        return dy

    def _passing(self, shape: tuple[int, ...]) -> Array:
        """What comes from another stage: a buffer, until a layer keeps it."""
        x = phantom(shape, self._dtype)
        hold("buffers", x)
        return x


def joined(layers: Sequence[Footprint]) -> Footprint:
    """The footprint of a stage from those of its layers: memory and times add up.

    When backward reaches a layer, the layers before it keep all since forward; those after it keep nothing, or what
    W needs. While a layer works, so does what of the stage's input none keeps, unless it is this layer's own.
    """
    kept, beside = _kept(layers), _loose(layers)
    f, i = (sum(layer.levels[letter].after for layer in layers) for letter in "FI")
    after = {"F": f, "B": 0.0, "I": i, "W": 0.0}
    during, passing, seconds = {}, {}, {}
    for letter in "FBIW":
        during[letter] = max(_sums(kept[letter], [layer.levels[letter].during for layer in layers]))
        passing[letter] = max(_sums(beside[letter], [layer.passing[letter] for layer in layers]))
        seconds[letter] = sum(layer.seconds.get(letter, 0.0) for layer in layers)
    working = {letter: max(each) for letter, each in working_bytes(layers).items()}
    levels = {letter: Level(during[letter], after[letter]) for letter in after}
    loose = {letter: layers[0 if letter == "F" else -1].loose[letter] for letter in "FBIW"}
    left = {letter: each[0] - loose[letter] for letter, each in left_bytes(layers).items()}
    text_bytes, shared_bytes = (sum(map(attrgetter(name), layers)) for name in ("text_bytes", "shared_bytes"))
    sizes = text_bytes, max(layer.scratch_bytes for layer in layers), shared_bytes
    return Footprint(layers[0].input_bytes, levels, passing, working, loose, left, *sizes, seconds)


def working_bytes(layers: Sequence[Footprint]) -> dict[str, list[float]]:
    """By the letter of an action on a stage of these layers: `Footprint.working` of the stage while each works."""
    kept, beside = _kept(layers), _loose(layers)
    return {c: _sums(kept[c], beside[c], [layer.working[c] for layer in layers]) for c in "FBIW"}


def left_bytes(layers: Sequence[Footprint]) -> dict[str, list[float]]:
    """The same in B and W when the gradients of each are complete."""
    kept, loose = _kept(layers), layers[-1].loose
    return {c: _sums(kept[c], [loose[c] + layer.left[c] for layer in layers]) for c in "BW"}


def _kept(layers: Sequence[Footprint]) -> dict[str, list[float]]:
    """By letter, what the other layers keep while each works."""
    f, i = ([layer.levels[letter].after for layer in layers] for letter in "FI")
    f_before, i_before = ([0.0, *accumulate(kept)][:-1] for kept in (f, i))  # of the layers before the k-th
    i_after = [0.0, *accumulate(reversed(i[1:]))][::-1]
    return {"F": f_before, "B": f_before, "I": _sums(f_before, i_after), "W": i_before}


def _loose(layers: Sequence[Footprint]) -> dict[str, list[float]]:
    """By letter, what none keeps of the stage's input, while each layer works whose own input it is not."""
    others = len(layers) - 1
    beside = {letter: [*[layers[-1].loose[letter]] * others, 0.0] for letter in "BIW"}
    return beside | {"F": [0.0, *[layers[0].loose["F"]] * others]}


def _sums(*lists: Sequence[float]) -> list[float]:
    """The sum of their first items, of their second ones, and so on."""
    return list(map(sum, zip(*lists, strict=True)))
