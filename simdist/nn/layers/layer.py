"""Layer: one step of a model."""

from abc import ABC, abstractmethod
from itertools import takewhile
from typing import Any

from simdist.arrays import Array
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["Layer", "Weightless", "label"]


class Layer(ABC):
    """One step of a model. It keeps no state of a batch, so many batches may be in flight at once.

        y, context = layer.forward(x)              context: all that backward needs of this batch
        dx = layer.backward(context, dy)           adds to the parameters' gradients, consumes the context

    Backward is also available in two halves, so that the half that other layers wait for can run first:

        dx, pending = layer.backward_input(context, dy)
        layer.backward_weight(context, pending)    at any time later; consumes the context

    No layer changes x or dy. The caller owns what it returns, unless that is x or dy itself.

    Attributes:
        parameters: those that it uses, in the order of forward.
    """

    parameters: tuple[Parameter, ...]

    @abstractmethod
    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Any]:
        """The output for a batch, and the context that backward takes back.

        Args:
            x: samples along the first axis, features along the last.
            noise: identifies these samples, for dropout; without it nothing is dropped.
        """

    def backward(self, context: Any, dy: Array) -> Array:
        """The derivatives by the layer's input; those by its parameters are added to their gradients."""
        dx, pending = self.backward_input(context, dy)
        self.backward_weight(context, pending)
        return dx

    @abstractmethod
    def backward_input(self, context: Any, dy: Array) -> tuple[Array, Any]:
        """The derivatives by the layer's input, and what `backward_weight` needs besides the context."""

    @abstractmethod
    def backward_weight(self, context: Any, pending: Any) -> None:
        """Add the derivatives by the parameters to their gradients; pending is from `backward_input`."""


class Weightless(Layer):
    """A layer without parameters: its backward is `backward_input`, with nothing pending."""

    parameters = ()

    def backward_weight(self, context: Any, pending: Any) -> None:
        """Nothing is left to do."""


def label(layer: Layer, before: str = "") -> str:
    """The layer's name; else the common prefix of its parameters' names; else its class, after `before`."""
    own = getattr(layer, "name", "")
    if own:
        return str(own)
    names = [parameter.name.split(".")[:-1] for parameter in layer.parameters]
    common = takewhile(lambda words: len(set(words)) == 1, zip(*names, strict=False))
    return ".".join(words[0] for words in common) or f"{before} {type(layer).__name__.lower()}".strip()
