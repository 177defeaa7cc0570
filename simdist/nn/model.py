"""Model: layers that end in logits, the loss on them, and how windows of text become its examples."""

from collections.abc import Callable
from typing import Any

from simdist.arrays import Array, hold, moved
from simdist.arrays.working import overflow
from simdist.errors import ArrayError
from simdist.nn import auxiliary
from simdist.nn.layers import Observer, Sequence
from simdist.nn.loss import CrossEntropy, Loss
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameters

__all__ = ["Model"]


class Model:
    """A model to train: layers, examples and a loss.

        total, context = model.forward(windows)     the summed loss of a batch, in nats
        model.backward(context, scale)              adds scale * the loss's derivatives to the gradients

    Backward is also available in two halves, as in a `Layer`; either way it consumes the context.

    Args:
        layers: from inputs to logits.
        examples: cuts windows of text, shape (n, length), uint8, into inputs and targets.
        targets_per_window: how many targets a window holds.
        loss: of the logits; cross-entropy, if not given.
        padded: pads texts at their end to a length that the layers can take.

    Attributes:
        parameters: all of them, in the order of forward.
    """

    def __init__(
        self,
        layers: Sequence,
        examples: Callable[[Array], tuple[Array, Array]],
        targets_per_window: int = 1,
        loss: Loss | None = None,
        padded: Callable[[Array], Array] = lambda tokens: tokens,
    ) -> None:
        self.layers = layers
        self._examples = examples
        self.targets_per_window = targets_per_window
        self.loss = loss or CrossEntropy()
        self.padded = padded
        self.parameters = Parameters(layers.parameters)

    def __repr__(self) -> str:
        return f"<model of {self.parameters.size:,} parameters>"

    def of(self, layers: Sequence) -> "Model":
        """A model of only these layers, with the same examples and loss; not bound to memory."""
        return Model(layers, self._examples, self.targets_per_window, self.loss, self.padded)

    def examples(self, windows: Array) -> tuple[Array, Array]:
        """Windows of text, shape (n, length), cut into inputs and targets, in the memory of the weights.

        Raises:
            ArrayError: windows are not whole numbers, or not of a shape or a length that the model takes.
        """
        _check_texts("windows", windows)
        return self._examples(moved(windows, self.parameters.kind))

    def forward(
        self, windows: Array, noise: Noise | None = None, observer: Observer | None = None
    ) -> tuple[float, Any]:
        """The sum of the losses of all targets in these windows, in nats, and the context for `backward`.

        Auxiliary losses of layers are not included: see `simdist.nn.auxiliary`.

        Args:
            windows: shape (n, length), uint8.
            noise: identifies these windows in the global batch, for dropout; without it nothing is dropped.
            observer: notified of each of `layers`.
        """
        inputs, targets = self.examples(windows)
        with overflow(self.parameters.dtype):
            logits, context = self.layers.forward(inputs, noise, observer)
            total, of_loss = self.loss.forward(logits, targets)
        return self.loss.total(total), [context, of_loss]

    def logits(self, tokens: Array, observer: Observer | None = None) -> Array:
        """The logits of the next token, shape (n, classes), after each row of tokens, shape (n, length), uint8.

        Raises:
            ArrayError: tokens are not whole numbers, or not of such a shape, or there are none.
        """
        _check_texts("tokens", tokens)
        padded = moved(self.padded(tokens), self.parameters.kind)
        with overflow(self.parameters.dtype):
            logits, _ = self.layers.forward(padded, None, observer)
            return self.loss.last(logits, tokens.shape[1] - padded.shape[1] - 1)

    def backward(self, context: Any, scale: float, observer: Observer | None = None) -> None:
        """Add the derivatives of scale * the summed loss, auxiliary losses included, to the parameters' gradients."""
        with overflow(self.parameters.dtype), auxiliary.scaled(scale):
            self.layers.backward(context[0], self._loss_backward(context.pop(), scale), observer)

    def backward_input(self, context: Any, scale: float, observer: Observer | None = None) -> Any:
        """The half of `backward` that goes from the loss to the first layer; returns what is pending."""
        with overflow(self.parameters.dtype), auxiliary.scaled(scale):
            _, pending = self.layers.backward_input(context[0], self._loss_backward(context.pop(), scale), observer)
        return pending

    def backward_weight(self, context: Any, pending: Any, observer: Observer | None = None) -> None:
        """The other half: add to the parameters' gradients."""
        with overflow(self.parameters.dtype):
            self.layers.backward_weight(context[0], pending, observer)

    def _loss_backward(self, of_loss: Any, scale: float) -> Array:
        """The derivatives by the logits."""
        dy = self.loss.backward(of_loss, scale)
        hold("buffers", dy, "loss")
        return dy


def _check_texts(name: str, texts: Array) -> None:
    """Raise ArrayError unless these are texts of at least one token, a row each."""
    if getattr(texts, "ndim", 0) != 2 or texts.dtype.kind not in "ui" or not texts.shape[1]:
        told = f"{texts.dtype} of shape {texts.shape}" if hasattr(texts, "dtype") else repr(texts)[:60]
        raise ArrayError(f"{name} are {told}; needs uint8 of shape (n, length), and a length of at least 1")
