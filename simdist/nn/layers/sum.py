"""Sum: layers side by side."""

from collections.abc import Iterable
from typing import Any

from simdist.arrays import Array, hold
from simdist.nn import functional as f
from simdist.nn.layers.label import label
from simdist.nn.layers.layer import Layer
from simdist.nn.noise import Noise

__all__ = ["Sum"]


class Sum(Layer):
    """y = layer1(x) + layer2(x) + …; no layer may return x or dy itself. The context is the list of their contexts.

    What each layer keeps is reported to the ledger, if there is one.
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.layers = tuple(layers)
        self.parameters = tuple(p for layer in self.layers for p in layer.parameters)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, list[Any]]:
        """All layers have the same input and the same noise."""
        y, contexts = None, []
        for layer in self.layers:
            own, context = layer.forward(x, noise)
            hold("activations", context, label(layer))
            contexts.append(context)
            y = own if y is None else f.add(y, own)
        return y, contexts

    def backward(self, context: list[Any], dy: Array) -> Array:
        """From the last layer to the first, freeing each context as soon as it is used."""
        dx = None
        for layer in reversed(self.layers):
            own = layer.backward(context.pop(), dy)
            dx = own if dx is None else f.add(dx, own)
        return dx

    def backward_input(self, context: list[Any], dy: Array) -> tuple[Array, list[Any]]:
        """From the last layer to the first; pending is a list in the order of the layers."""
        dx, pending = None, list[Any]()
        for layer, inner in zip(reversed(self.layers), reversed(context), strict=True):
            own, rest = layer.backward_input(inner, dy)
            pending.insert(0, rest)
            dx = own if dx is None else f.add(dx, own)
        return dx, pending

    def backward_weight(self, context: list[Any], pending: list[Any]) -> None:
        """From the last layer to the first."""
        for layer in reversed(self.layers):
            layer.backward_weight(context.pop(), pending.pop())
