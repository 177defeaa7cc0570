"""Model: layers that end in logits, the loss on them, and how windows of text become its examples."""

from collections.abc import Callable
from typing import Any

from simdist.arrays import Array
from simdist.nn import functional as f
from simdist.nn.layers import Observer, Sequence
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameters

__all__ = ["Model"]


class Model:
    """What a trainer trains.

        total, context = model.forward(windows)     the summed loss of a batch, in nats
        model.backward(context, scale)              adds scale * the loss's derivatives to the gradients

    Backward also comes in the two halves of a `Layer`'s; either way it uses the context up.

    Args:
        layers: from inputs to logits, shape (…, classes).
        examples: cuts windows of text, shape (n, length), uint8, into inputs and targets.
        targets_per_window: how many targets a window holds.

    Attributes:
        parameters: all of them, in the order of forward.
    """

    def __init__(
        self, layers: Sequence, examples: Callable[[Array], tuple[Array, Array]], targets_per_window: int = 1
    ) -> None:
        self.layers = layers
        self.examples = examples
        self.targets_per_window = targets_per_window
        self.parameters = Parameters(layers.parameters)

    def forward(
        self, windows: Array, noise: Noise | None = None, observer: Observer | None = None
    ) -> tuple[float, Any]:
        """The sum of the losses of all targets in these windows, in nats, and the context for `backward`.

        Args:
            windows: shape (n, length), uint8.
            noise: which windows of the global batch these are, for dropout; without it nothing is dropped.
            observer: is told of each of `layers`.
        """
        inputs, targets = self.examples(windows)
        logits, context = self.layers.forward(inputs, noise, observer)
        targets = targets.reshape(-1)
        total, p = f.cross_entropy(logits.reshape(len(targets), logits.shape[-1]), targets)
        return total, (context, p, targets, logits.shape)

    def backward(self, context: Any, scale: float, observer: Observer | None = None) -> None:
        """Add the derivatives of scale * the summed loss to the parameters' gradients."""
        self.layers.backward(context[0], self._start(context, scale), observer)

    def backward_input(self, context: Any, scale: float, observer: Observer | None = None) -> Any:
        """The half of `backward` that goes from the loss to the first layer; returns what is pending."""
        return self.layers.backward_input(context[0], self._start(context, scale), observer)[1]

    def backward_weight(self, context: Any, pending: Any, observer: Observer | None = None) -> None:
        """The other half: add to the parameters' gradients."""
        self.layers.backward_weight(context[0], pending, observer)

    @staticmethod
    def _start(context: Any, scale: float) -> Array:
        """The derivatives by the logits."""
        _, p, targets, shape = context
        return f.cross_entropy_backward(p, targets, scale).reshape(shape)
