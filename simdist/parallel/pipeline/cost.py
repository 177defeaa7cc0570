"""Cost: the cost of each layer, for splitting a model into stages of about equal cost."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, Ledger, metered, phantom, recorded, unmetered
from simdist.cluster import Device
from simdist.errors import as_declared
from simdist.nn import Model
from simdist.parallel.pipeline.memory import Memory
from simdist.parallel.pipeline.times import Times

__all__ = ["LayerCost", "measured_costs", "modelled_costs", "stage_times", "zero_bubble_layer"]


class LayerCost(NamedTuple):
    """The cost of a layer's forward and of the two halves of its backward; the last layer includes the loss."""

    forward: float
    backward_input: float
    backward_weight: float

    @property
    def total(self) -> float:
        """The sum of the three."""
        return self.forward + self.backward_input + self.backward_weight


@as_declared
def zero_bubble_layer(width: int, heads: int, context: int, sequences: int = 1) -> tuple[LayerCost, Memory]:
    """The operations and bytes of a GPT block for one micro-batch, as the zero-bubble paper counts them.

        F = sbh (24h + 4s)      B = sbh (24h + 8s)      W = 24sbh²      M_B = sb (34h + 5as)      M_W = 32sbh

    Args:
        width, heads, context: h, a and s.
        sequences: in the micro-batch, b.

    Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, table 1.
    """
    h, a, s, b = width, heads, context, sequences
    flops = LayerCost(s * b * h * (24 * h + 4 * s), s * b * h * (24 * h + 8 * s), 24 * s * b * h**2)
    return flops, Memory(s * b * (34 * h + 5 * a * s), 32 * s * b * h)


class _Reading:
    """A meter that sums operations, or the seconds that a device needs, and does not move the clock."""

    def __init__(self, device: Device | None = None) -> None:
        self.value = 0.0
        self._device = device

    def charge(self, flops: int, bytes: int) -> None:
        """Add this work."""
        self.value += flops if self._device is None else self._device.seconds(flops, bytes)


def modelled_costs(
    model: Model, num_windows: int, length: int, device: Device | None = None, dtype: Any = np.float32
) -> list[LayerCost]:
    """The cost of each layer of the model, measured by the meter on phantom arrays.

    Args:
        model: a model on one process; it stays bound to phantoms.
        num_windows, length: the shape of a micro-batch.
        device: if given, costs are seconds on this device; otherwise operations.
        dtype: of weights and activations.
    """
    size, reading = model.parameters.size, _Reading(device)
    model.parameters.bind(phantom(size, dtype), phantom(size, dtype))
    with metered(reading):
        return _walk(model, phantom((num_windows, length), np.uint8), lambda: reading.value)


def measured_costs(model: Model, windows: Array, repeats: int = 3) -> list[LayerCost]:
    """The least wall seconds of several runs. The model must be bound; this adds to its gradients."""
    with unmetered():
        runs = [_walk(model, windows, perf_counter) for _ in range(repeats)]
    return [LayerCost(*(min(each) for each in zip(*layer, strict=True))) for layer in zip(*runs, strict=True)]


def _walk(model: Model, windows: Array, read: Callable[[], float]) -> list[LayerCost]:
    """Forward and backward, with a reading between layers."""
    layers = model.layers.layers
    x, targets = model.examples(windows)
    contexts, forward, inputs, weights = [], [read()], list[float](), list[float]()
    with recorded(Ledger()):
        for layer in layers:
            x, context = layer.forward(x)
            contexts.append(context)
            forward.append(read())
        _, of_loss = model.loss.forward(x, targets)
        forward[-1] = before = read()
        dy = model.loss.backward(of_loss, 1.0)
        for layer in reversed(layers):
            context = contexts.pop()
            dy, pending = layer.backward_input(context, dy)
            middle = read()
            layer.backward_weight(context, pending)
            inputs.append(middle - before)
            weights.append((before := read()) - middle)
    return [
        LayerCost(b - a, i, w)
        for (a, b), i, w in zip(pairwise(forward), reversed(inputs), reversed(weights), strict=True)
    ]


def stage_times(costs: Sequence[LayerCost], stages: Iterable[slice], communication: float = 0.0) -> Times:
    """The times of stages: for each, the sum over its layers."""
    own = [costs[stage] for stage in stages]
    return Times(
        tuple(sum(c.forward for c in stage) for stage in own),
        tuple(sum(c.backward_input for c in stage) for stage in own),
        tuple(sum(c.backward_weight for c in stage) for stage in own),
        communication,
    )
