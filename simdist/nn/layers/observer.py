"""Observer: callbacks before and after each layer of a model."""

from simdist.nn.layers.layer import Layer
from simdist.nn.parameters import Parameter

__all__ = ["Observer", "Observers"]


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
