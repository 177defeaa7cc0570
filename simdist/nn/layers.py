"""Layers: forward and backward of one step of a model, on parameters it holds and a context it hands out."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from simdist.arrays import Array
from simdist.nn import functional as f
from simdist.nn.parameters import Parameter

__all__ = ["Embedding", "Gelu", "Layer", "Linear", "Sequence"]


class Layer(ABC):
    """One step of a model. Nothing of a batch is kept on it, so many batches may be in flight at once.

        y, context = layer.forward(x)              context: whatever backward needs of this batch
        dx = layer.backward(context, dy)           adds to the parameters' gradients

    Backward also comes in its two halves, so that the half that others wait for can go first:

        dx, pending = layer.backward_input(context, dy)
        layer.backward_weight(context, pending)    at any time later

    Attributes:
        parameters: its own, in the order in which forward uses them.
    """

    parameters: tuple[Parameter, ...]

    @abstractmethod
    def forward(self, x: Array) -> tuple[Array, Any]:
        """The output for a batch, a row an example, and the context that backward takes back."""

    @abstractmethod
    def backward(self, context: Any, dy: Array) -> Array:
        """The derivatives by the layer's input; those by its parameters are added to their gradients."""

    @abstractmethod
    def backward_input(self, context: Any, dy: Array) -> tuple[Array, Any]:
        """The derivatives by the layer's input, and what `backward_weight` needs besides the context."""

    @abstractmethod
    def backward_weight(self, context: Any, pending: Any) -> None:
        """Add the derivatives by the parameters to their gradients; pending is from `backward_input`."""


class Linear(Layer):
    """y = x @ w + b. Weights are drawn with standard deviation gain / √in_features, biases start at zero.

    With gain 1 the outputs vary about as much as the inputs.
    """

    def __init__(self, name: str, in_features: int, out_features: int, gain: float = 1.0) -> None:
        self.w = Parameter(f"{name}.w", (in_features, out_features), std=gain / math.sqrt(in_features))
        self.b = Parameter(f"{name}.b", (out_features,))
        self.parameters = (self.w, self.b)

    def forward(self, x: Array) -> tuple[Array, Array]:
        """The context is x."""
        return f.linear(x, self.w.data, self.b.data), x

    def backward(self, context: Array, dy: Array) -> Array:
        """Both halves."""
        self.backward_weight(context, dy)
        return f.linear_backward_input(dy, self.w.data)

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns dy @ w.T; dy itself is pending."""
        return f.linear_backward_input(dy, self.w.data), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add x.T @ dy and the sum of dy."""
        f.linear_backward_weight(context, pending, self.w.gradient, self.b.gradient)


class Gelu(Layer):
    """The Gaussian error linear unit; no parameters."""

    parameters = ()

    def forward(self, x: Array) -> tuple[Array, tuple[Array, Array]]:
        """The context is x and its tanh."""
        y, t = f.gelu(x)
        return y, (x, t)

    def backward(self, context: tuple[Array, Array], dy: Array) -> Array:
        """Returns dy times the slope."""
        return f.gelu_backward(*context, dy)

    def backward_input(self, context: tuple[Array, Array], dy: Array) -> tuple[Array, None]:
        """The whole of backward."""
        return f.gelu_backward(*context, dy), None

    def backward_weight(self, context: Any, pending: None) -> None:
        """Nothing is left to do."""


class Embedding(Layer):
    """A vector for each entry, side by side for the entries of an example: (n, k) integers to (n, k * width)."""

    def __init__(self, name: str, entries: int, width: int) -> None:
        self.table = Parameter(f"{name}.table", (entries, width), std=1.0)
        self.parameters = (self.table,)

    def forward(self, x: Array) -> tuple[Array, Array]:
        """The context is the entries, x."""
        rows, columns = x.shape
        return f.embedding(x, self.table.data).reshape(rows, columns * self.table.shape[1]), x

    def backward(self, context: Array, dy: Array) -> Array:
        """Both halves; integers have no derivative, so what comes back is empty."""
        self.backward_weight(context, dy)
        return dy[:, :0]

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Nothing but what is pending: dy."""
        return dy[:, :0], dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add each part of dy to the row of the table that it came from."""
        f.embedding_backward(context, pending, self.table.gradient)


class Sequence(Layer):
    """Layers one after the other: the context is the list of theirs."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.layers = tuple(layers)
        self.parameters = tuple(parameter for layer in self.layers for parameter in layer.parameters)

    def forward(self, x: Array) -> tuple[Array, list[Any]]:
        """Each layer's output is the next one's input."""
        contexts = []
        for layer in self.layers:
            x, context = layer.forward(x)
            contexts.append(context)
        return x, contexts

    def backward(self, context: list[Any], dy: Array) -> Array:
        """From the last layer to the first."""
        for layer, inner in zip(reversed(self.layers), reversed(context), strict=True):
            dy = layer.backward(inner, dy)
        return dy

    def backward_input(self, context: list[Any], dy: Array) -> tuple[Array, list[Any]]:
        """From the last layer to the first; pending are theirs, in that order."""
        pending = []
        for layer, inner in zip(reversed(self.layers), reversed(context), strict=True):
            dy, rest = layer.backward_input(inner, dy)
            pending.append(rest)
        return dy, pending

    def backward_weight(self, context: list[Any], pending: list[Any]) -> None:
        """From the last layer to the first."""
        for layer, inner, rest in zip(reversed(self.layers), reversed(context), pending, strict=True):
            layer.backward_weight(inner, rest)
