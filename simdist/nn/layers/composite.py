"""Composite: layers made of others: one after the other, around another, or side by side on the same input."""

from abc import abstractmethod
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np

from simdist.arrays import Array, charge, consecutive, hold
from simdist.nn import auxiliary
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer, Observer, label
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["Fork", "Recompute", "Residual", "Sequence", "Sum"]


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


class Residual(Layer):
    """y = x + layer(x); the layer must not return x or dy itself."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.parameters = layer.parameters

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Any]:
        """The context is the inner layer's."""
        y, context = self.layer.forward(x, noise)
        return f.add(y, x), context

    def backward(self, context: Any, dy: Array) -> Array:
        """dy, plus the inner layer's derivatives."""
        return f.add(self.layer.backward(context, dy), dy)

    def backward_input(self, context: Any, dy: Array) -> tuple[Array, Any]:
        """dy, plus the inner layer's derivatives; pending is the inner layer's."""
        dx, pending = self.layer.backward_input(context, dy)
        return f.add(dx, dy), pending

    def backward_weight(self, context: Any, pending: Any) -> None:
        """The inner layer's."""
        self.layer.backward_weight(context, pending)


class Recompute(Layer):
    """A layer that keeps only its input, and recomputes forward in backward (activation checkpointing).

    The ledger counts recomputed activations while they are in use. Forward draws the same noise again, so the
    gradients are the same, bit for bit.

    Cost: a second forward, for the memory of its activations.

    Source: Chen, Xu, Zhang, Guestrin 2016, arXiv 1604.06174; selective: Korthikanti et al. 2022,
    arXiv 2205.05198, section 5.
    """

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.name = label(layer)
        self.parameters = layer.parameters

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, tuple[Array, Noise | None]]:
        """The context is the input and the noise."""
        return self._run(x, noise)[0], (x, noise)

    def _run(self, x: Array, noise: Noise | None) -> tuple[Array, Any]:
        y, inner = self.layer.forward(x, noise)
        hold("activations", inner, self.name)
        return y, inner

    def _recompute(self, context: tuple[Array, Noise | None]) -> Any:
        """The inner layer's context; auxiliary losses are discarded, since the first forward has counted them."""
        with auxiliary.collected():
            return self._run(*context)[1]

    def backward(self, context: tuple[Array, Noise | None], dy: Array) -> Array:
        """Forward again, then backward."""
        return self.layer.backward(self._recompute(context), dy)

    def backward_input(self, context: tuple[Array, Noise | None], dy: Array) -> tuple[Array, tuple[Any, Any]]:
        """Forward again; pending are its context and the inner layer's pending."""
        inner = self._recompute(context)
        dx, pending = self.layer.backward_input(inner, dy)
        return dx, (inner, pending)

    def backward_weight(self, context: tuple[Array, Noise | None], pending: tuple[Any, Any]) -> None:
        """The inner layer's."""
        self.layer.backward_weight(*pending)


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
