"""Side by side: layers on the same input, whose outputs are added, or stay side by side."""

from abc import abstractmethod
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np

from simdist.arrays import Array, charge, consecutive, hold
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer, label
from simdist.nn.noise import Noise

__all__ = ["Fork", "Sum"]


class _SideBySide(Layer):
    """Layers on the same input.

                +--> layer1 --+
        x ------+             +--> y
                +--> layer2 --+

    The context is what `_apart` needs, and the list of the layers' contexts. What each layer keeps is reported to the
    ledger, if there is one.
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.layers = tuple(layers)
        self.parameters = tuple(p for layer in self.layers for p in layer.parameters)

    @abstractmethod
    def _together(self, outputs: list[Array]) -> tuple[Array, Any]:
        """y from the outputs of all layers, and what `_apart` needs of them."""

    @abstractmethod
    def _apart(self, dy: Array, how: Any) -> list[Array]:
        """The derivatives by each layer's output; `how` is from `_together`."""

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, tuple[Any, list[Any]]]:
        """All layers have the same input and the same noise."""
        outputs, contexts = [], []
        for layer in self.layers:
            y, context = layer.forward(x, noise)
            hold("activations", context, label(layer))
            outputs.append(y)
            contexts.append(context)
        y, how = self._together(outputs)
        return y, (how, contexts)

    def backward(self, context: tuple[Any, list[Any]], dy: Array) -> Array:
        """From the last layer to the first, freeing each context as soon as it is used."""
        how, contexts = context
        parts = self._apart(dy, how)
        dxs = (layer.backward(contexts.pop(), parts.pop()) for layer in reversed(self.layers))
        return reduce(f.add, dxs)

    def backward_input(self, context: tuple[Any, list[Any]], dy: Array) -> tuple[Array, list[Any]]:
        """From the last layer to the first; pending is a list in the order of the layers."""
        how, contexts = context
        dx, parts = None, self._apart(dy, how)
        pending: list[Any] = [None] * len(self.layers)
        for i in reversed(range(len(self.layers))):
            own, pending[i] = self.layers[i].backward_input(contexts[i], parts[i])
            dx = own if dx is None else f.add(dx, own)
        return dx, pending

    def backward_weight(self, context: tuple[Any, list[Any]], pending: list[Any]) -> None:
        """From the last layer to the first."""
        for layer in reversed(self.layers):
            layer.backward_weight(context[1].pop(), pending.pop())


class Sum(_SideBySide):
    """y = layer1(x) + layer2(x) + …; no layer may return x or dy itself."""

    def _together(self, outputs: list[Array]) -> tuple[Array, None]:
        return reduce(f.add, outputs), None

    def _apart(self, dy: Array, how: None) -> list[Array]:
        return [dy] * len(self.layers)


class Fork(_SideBySide):
    """y = [ layer1(x) | layer2(x) | … ], the features of all outputs one after the other."""

    def _together(self, outputs: list[Array]) -> tuple[Array, list[int]]:
        """Also the widths of the outputs."""
        widths = [own.shape[-1] for own in outputs]
        y = np.empty_like(outputs[0], shape=(*outputs[0].shape[:-1], sum(widths)))
        for own, to in zip(outputs, consecutive(widths), strict=True):
            y[..., to] = own
        charge(0, 2 * y.nbytes)
        return y, widths

    def _apart(self, dy: Array, how: list[int]) -> list[Array]:
        """Contiguous, as products of matrices need them."""
        charge(0, 2 * dy.nbytes)
        return [dy[..., columns].copy() for columns in consecutive(how)]
