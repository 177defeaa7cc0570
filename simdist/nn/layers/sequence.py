"""Sequence: layers one after the other."""

from collections.abc import Iterable
from typing import Any

from simdist.arrays import Array, hold
from simdist.nn.layers.layer import Layer, label
from simdist.nn.layers.observer import Observer
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["Sequence"]


class Sequence(Layer):
    """Layers one after the other: the context is the list of their contexts.

    Backward removes contexts from the end, so that the memory of a layer's activations is freed once they are used.
    What each layer keeps and what it passes on is reported to the ledger, if there is one.

    Attributes:
        layers: in order; `labels` are their names.
        parameters: of all layers, each once, in order of first use.
        completes: for each layer, the parameters whose gradients are complete after its backward: those that
            no earlier layer uses.
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.layers = tuple(layers)
        self.labels: list[str] = []
        for layer in self.layers:
            self.labels.append(label(layer, self.labels[-1] if self.labels else ""))
        seen: set[Parameter] = set()
        self.completes: list[tuple[Parameter, ...]] = []
        for layer in self.layers:
            self.completes.append(tuple(p for p in layer.parameters if p not in seen))
            seen.update(layer.parameters)
        self.parameters = tuple(p for own in self.completes for p in own)

    def forward(
        self, x: Array, noise: Noise | None = None, observer: Observer | None = None
    ) -> tuple[Array, list[Any]]:
        """Each layer's output is the next one's input."""
        observer = observer or Observer()
        contexts = []
        for layer, name in zip(self.layers, self.labels, strict=True):
            observer.before_forward(layer)
            x, context = layer.forward(x, noise)
            hold("activations", context, name)
            hold("buffers", x, name)
            observer.after_forward(layer)
            contexts.append(context)
        return x, contexts

    def backward(self, context: list[Any], dy: Array, observer: Observer | None = None) -> Array:
        """From the last layer to the first."""
        observer = observer or Observer()
        for i in reversed(range(len(self.layers))):
            layer = self.layers[i]
            observer.before_gradients(layer)
            observer.before_backward(layer)
            dy = layer.backward(context.pop(), dy)
            hold("buffers", dy, self.labels[i])
            observer.after_backward(layer)
            observer.gradients_complete(self.completes[i])
        return dy

    def backward_input(
        self, context: list[Any], dy: Array, observer: Observer | None = None
    ) -> tuple[Array, list[Any]]:
        """From the last layer to the first; pending is a list in the order of the layers.

        A layer without parameters has nothing left to do, so its context is freed.
        """
        observer = observer or Observer()
        pending: list[Any] = [None] * len(self.layers)
        for i in reversed(range(len(self.layers))):
            layer, name = self.layers[i], self.labels[i]
            observer.before_backward(layer)
            dy, rest = layer.backward_input(context[i], dy)
            if layer.parameters:
                hold("activations", rest, name)
                pending[i] = rest
            else:
                context[i] = None
            hold("buffers", dy, name)
            observer.after_backward(layer)
        return dy, pending

    def backward_weight(self, context: list[Any], pending: list[Any], observer: Observer | None = None) -> None:
        """From the last layer to the first."""
        observer = observer or Observer()
        for layer, own in zip(reversed(self.layers), reversed(self.completes), strict=True):
            inner, rest = context.pop(), pending.pop()
            observer.before_gradients(layer)
            if layer.parameters:
                layer.backward_weight(inner, rest)
            observer.gradients_complete(own)
