"""Model: layers that end in logits, the loss on them, and how windows of text become its examples."""

from collections.abc import Callable
from typing import Any

from simdist.arrays import Array
from simdist.nn import functional as f
from simdist.nn.layers import Layer
from simdist.nn.parameters import Parameters

__all__ = ["Model"]


class Model:
    """What a trainer trains.

        total, context = model.forward(windows)     the summed loss of a batch, in nats
        model.backward(context, scale)              adds scale * the loss's derivatives to the gradients

    Args:
        layers: from inputs to logits, shape (examples, classes).
        examples: cuts windows of text, shape (n, length), uint8, into inputs and targets; a window may
            hold one target or many.

    Attributes:
        parameters: all of them, in the order of forward.
    """

    def __init__(self, layers: Layer, examples: Callable[[Array], tuple[Array, Array]]) -> None:
        self.layers = layers
        self.examples = examples
        self.parameters = Parameters(layers.parameters)

    def forward(self, windows: Array) -> tuple[float, Any]:
        """The sum of the losses of all targets in these windows, in nats, and the context for `backward`."""
        inputs, targets = self.examples(windows)
        logits, context = self.layers.forward(inputs)
        total, p = f.cross_entropy(logits, targets)
        return total, (context, p, targets)

    def backward(self, context: Any, scale: float) -> None:
        """Add the derivatives of scale * the summed loss to the parameters' gradients."""
        inner, p, targets = context
        self.layers.backward(inner, f.cross_entropy_backward(p, targets, scale))
