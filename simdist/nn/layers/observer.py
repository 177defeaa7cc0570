"""Observer: callbacks for what a model is about to do, and has done."""

from simdist.nn.layers.layer import Layer
from simdist.nn.parameters import Parameter

__all__ = ["Observer"]


class Observer:
    """Notified of each layer of a `Sequence`; does nothing; subclasses override the callbacks that they need.

        forward     before_forward, layer.forward, after_forward             first layer to last
        backward    before_backward, layer.backward, after_backward          last layer to first
                    then gradients_complete

    So a model knows nothing of ranks: a method that shards parameters gathers them before a layer and frees them
    after it, and one that averages gradients starts as soon as some are complete.
    """

    def before_forward(self, layer: Layer) -> None:
        """The layer's parameters are about to be read."""

    def after_forward(self, layer: Layer) -> None:
        """They were read, until backward."""

    def before_backward(self, layer: Layer) -> None:
        """The layer's parameters are about to be read, and their gradients, in a whole backward, added to."""

    def after_backward(self, layer: Layer) -> None:
        """They were. In a backward of halves, this is after the first, and the second reads no parameters."""

    def gradients_complete(self, parameters: tuple[Parameter, ...]) -> None:
        """These gradients get nothing more from this batch: each parameter is told of once.

        One that several layers use is complete only after the first of them, which is the last in backward.
        """
