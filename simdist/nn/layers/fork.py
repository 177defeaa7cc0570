"""Fork: layers side by side on the same input."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from simdist.arrays import Array, charge, hold
from simdist.nn import functional as f
from simdist.nn.layers.label import label
from simdist.nn.layers.layer import Layer
from simdist.nn.noise import Noise

__all__ = ["Fork"]


class Fork(Layer):
    """y = [ layer1(x) | layer2(x) | … ], the features of all outputs one after the other.

                +--> layer1 --+
        x ------+             +--> y          The context is the widths of the outputs, and their layers' contexts.
                +--> layer2 --+

    What each layer keeps is reported to the ledger, if there is one.
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.layers = tuple(layers)
        self.parameters = tuple(p for layer in self.layers for p in layer.parameters)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, tuple[list[int], list[Any]]]:
        """All layers have the same input and the same noise."""
        outputs, contexts = [], []
        for layer in self.layers:
            y, context = layer.forward(x, noise)
            hold("activations", context, label(layer))
            outputs.append(y)
            contexts.append(context)
        return _joined(outputs), ([y.shape[-1] for y in outputs], contexts)

    def backward(self, context: tuple[list[int], list[Any]], dy: Array) -> Array:
        """From the last layer to the first, freeing each context as soon as it is used."""
        widths, contexts = context
        dx, parts = None, _split(dy, widths)
        for layer in reversed(self.layers):
            own = layer.backward(contexts.pop(), parts.pop())
            dx = own if dx is None else f.add(dx, own)
        return dx

    def backward_input(self, context: tuple[list[int], list[Any]], dy: Array) -> tuple[Array, list[Any]]:
        """From the last layer to the first; pending is a list in the order of the layers."""
        widths, contexts = context
        dx, pending = None, list[Any]()
        for layer, inner, part in zip(*map(reversed, (self.layers, contexts, _split(dy, widths))), strict=True):
            own, rest = layer.backward_input(inner, part)
            pending.insert(0, rest)
            dx = own if dx is None else f.add(dx, own)
        return dx, pending

    def backward_weight(self, context: tuple[list[int], list[Any]], pending: list[Any]) -> None:
        """From the last layer to the first."""
        for layer in reversed(self.layers):
            layer.backward_weight(context[1].pop(), pending.pop())


def _joined(parts: list[Array]) -> Array:
    """All features of the parts, in an array of their own."""
    y = np.empty_like(parts[0], shape=(*parts[0].shape[:-1], sum(part.shape[-1] for part in parts)))
    for part, to in zip(parts, _columns([part.shape[-1] for part in parts]), strict=True):
        y[..., to] = part
    charge(0, 2 * y.nbytes)
    return y


def _split(dy: Array, widths: list[int]) -> list[Array]:
    """The parts of these widths, contiguous."""
    parts = []
    for part in _columns(widths):
        own = np.empty_like(dy, shape=(*dy.shape[:-1], part.stop - part.start))
        own[...] = dy[..., part]
        parts.append(own)
    charge(0, 2 * dy.nbytes)
    return parts


def _columns(widths: list[int]) -> list[slice]:
    ends = np.cumsum(widths).tolist()
    return [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
