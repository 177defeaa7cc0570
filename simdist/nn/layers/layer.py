"""Layer: one step of a model, and callbacks before and after it."""

from abc import ABC, abstractmethod
from itertools import takewhile
from typing import Any

from simdist.arrays import Array
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["Layer", "Observer", "Observers", "Weightless", "label"]


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


class Observer:
    """Notified of each layer of a `Sequence`. It does nothing itself; subclasses override the callbacks they need.

        forward     before_forward, layer.forward, after_forward             first layer to last
        backward    before_gradients, before_backward, layer.backward,       last layer to first
                    after_backward, then gradients_complete
        in halves   before_backward, layer.backward_input, after_backward;
                    later before_gradients, layer.backward_weight, gradients_complete

    So a model knows nothing of ranks: a method that shards parameters gathers them before a layer and frees them
    after it, and one that averages gradients starts as soon as some are complete.
    """

    def before_forward(self, layer: Layer) -> None:
        """The layer's parameters are about to be read."""

    def after_forward(self, layer: Layer) -> None:
        """They have been read, and are not needed until backward."""

    def before_backward(self, layer: Layer) -> None:
        """The layer's parameters are about to be read."""

    def before_gradients(self, layer: Layer) -> None:
        """The layer's gradients are about to be added to."""

    def after_backward(self, layer: Layer) -> None:
        """That is done. With backward in halves, this follows the first; the second reads no parameters."""

    def gradients_complete(self, parameters: tuple[Parameter, ...]) -> None:
        """These gradients are complete for this batch; each parameter is reported once.

        The gradient of a parameter that several layers use is complete after the first of them, the last in backward.
        """


class Observers(Observer):
    """Several observers of the same backward: passes every call to each, in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def before_backward(self, layer: Layer) -> None:
        """See Observer."""
        for observer in self._observers:
            observer.before_backward(layer)

    def after_backward(self, layer: Layer) -> None:
        """See Observer."""
        for observer in self._observers:
            observer.after_backward(layer)

    def before_gradients(self, layer: Layer) -> None:
        """See Observer."""
        for observer in self._observers:
            observer.before_gradients(layer)

    def gradients_complete(self, parameters: tuple[Parameter, ...]) -> None:
        """See Observer."""
        for observer in self._observers:
            observer.gradients_complete(parameters)
