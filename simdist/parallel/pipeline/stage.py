"""Stage: consecutive layers of a model that one rank of a pipeline executes together."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from simdist.arrays import Array, hold
from simdist.arrays.working import overflow
from simdist.nn import Layer, Noise, Observer, Sequence, auxiliary
from simdist.nn.loss import Loss

__all__ = ["MicroBatch", "Stage"]


class MicroBatch(NamedTuple):
    """Samples that go through the pipeline together.

    Attributes:
        inputs: of the first stage, shape (n, …); the other stages only use n.
        targets: for the last stage's loss; None for logits instead of a loss.
        scale: factor on the derivatives of the loss.
        noise: identifies the samples, for dropout; without it nothing is dropped.
        last: the token whose logits to return, counted from the end of a text, where there are no targets.
    """

    inputs: Array
    targets: Array | None
    scale: float = 0.0
    noise: Noise | None = None
    last: int = -1


class Stage:
    """Consecutive layers of a model.

        y, loss, context = stage.forward(x, micro_batch)      the last stage returns the loss and no y
        dx = stage.backward(context, dy, micro_batch)         and needs no dy

    Like a `Layer`, it also has the two halves of backward. It keeps nothing of a micro-batch, so many can be in flight
    at once.

    Args:
        layers: in order.
        first: whether it reads the micro-batches' inputs.
        loss: of the last layer's output; None unless this is the last stage.
        dtype: of weights and activations.

    Attributes:
        observe: called with the letter of each action that begins: what observes the layers in it.
    """

    def __init__(self, layers: Iterable[Layer], *, first: bool, loss: Loss | None, dtype: Any) -> None:
        self.layers = Sequence(layers)
        self.first = first
        self.loss = loss
        self.dtype = dtype
        self.observe: Callable[[str], Observer | None] = lambda letter: None

    def forward(self, x: Array | None, micro_batch: MicroBatch) -> tuple[Array | None, float, Any]:
        """The output, the sum of the losses in nats, and the context for backward.

        Args:
            x: the output of the previous stage; None for the first.

        Returns:
            the output; on the last stage None, or without targets the logits of one token of each text.
        """
        with overflow(self.dtype):
            x = micro_batch.inputs if self.first else x
            y, context = self.layers.forward(x, micro_batch.noise, self.observe("F"))
            if self.loss is None:
                return y, 0.0, [context, None]
            if micro_batch.targets is None:
                return self.loss.last(y, micro_batch.last), 0.0, [context, None]
            total, of_loss = self.loss.forward(y, micro_batch.targets)
        return None, self.loss.total(total), [context, of_loss]

    def backward(self, context: Any, dy: Array | None, micro_batch: MicroBatch) -> Array:
        """The derivatives with respect to the input; adds those of the weights to their gradients."""
        with overflow(self.dtype), auxiliary.scaled(micro_batch.scale):
            observer = self.observe("B")
            return self.layers.backward(context[0], self._loss_backward(context.pop(), dy, micro_batch), observer)

    def backward_input(self, context: Any, dy: Array | None, micro_batch: MicroBatch) -> tuple[Array, Any]:
        """The derivatives with respect to the input, and the context for `backward_weight`."""
        with overflow(self.dtype), auxiliary.scaled(micro_batch.scale):
            observer = self.observe("I")
            dx, pending = self.layers.backward_input(
                context[0], self._loss_backward(context.pop(), dy, micro_batch), observer
            )
        return dx, (*context, pending)

    def backward_weight(self, pending: Any) -> None:
        """Add the derivatives with respect to the weights to their gradients."""
        with overflow(self.dtype):
            context, rest = pending
            self.layers.backward_weight(context, rest, self.observe("W"))

    def _loss_backward(self, of_loss: Any, dy: Array | None, micro_batch: MicroBatch) -> Array:
        if self.loss is not None:
            dy = self.loss.backward(of_loss, micro_batch.scale)
            hold("buffers", dy, "loss")
        return dy
