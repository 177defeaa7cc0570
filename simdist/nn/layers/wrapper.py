"""Wrapper: layers around another layer."""

from typing import Any

from simdist.arrays import Array, hold
from simdist.nn import auxiliary
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer, label
from simdist.nn.noise import Noise

__all__ = ["Recompute", "Residual"]


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
