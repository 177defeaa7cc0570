"""Stage: consecutive layers of a model, which one rank of a pipeline executes together."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from simdist.arrays import Array
from simdist.arrays.working import overflow
from simdist.nn import Layer, Noise, Sequence, auxiliary
from simdist.nn.loss import Loss

__all__ = ["MicroBatch", "Stage"]


class MicroBatch(NamedTuple):
    """What goes through the pipeline as one.

    Attributes:
        inputs: of the first stage, shape (n, …); the other stages look at n alone.
        targets: for the last stage's loss; None where what comes next is asked for instead.
        scale: what the loss's derivatives are multiplied by.
        noise: which samples these are, for dropout; without it nothing is dropped.
        last: which token of a text is asked about, counted from its end, where there are no targets.
    """

    inputs: Array
    targets: Array | None
    scale: float = 0.0
    noise: Noise | None = None
    last: int = -1


class Stage:
    """Some of a model's layers, one after the other: from the output of the stage before to that of this one.

        y, loss, context = stage.forward(x, micro_batch)      the last stage has the loss, and no y to pass on
        dx = stage.backward(context, dy, micro_batch)         so it needs no dy either

    Backward also comes in the two halves of a `Layer`'s. Nothing of a micro-batch is kept here, so many may be in
    flight at once.

    Args:
        layers: in order.
        first: whether it takes the micro-batches' inputs.
        loss: of the last layer's output; None where this is not the last stage.
        dtype: of weights and activations.
    """

    def __init__(self, layers: Iterable[Layer], *, first: bool, loss: Loss | None, dtype: Any) -> None:
        self.layers = Sequence(layers)
        self.first = first
        self.loss = loss
        self.dtype = dtype

    def forward(self, x: Array | None, micro_batch: MicroBatch) -> tuple[Array | None, float, Any]:
        """The output, the sum of the losses in nats, and the context for backward.

        Args:
            x: the output of the stage before; nothing for the first.

        Returns:
            as output of the last stage nothing, or without targets what the loss says of each text's last token.
        """
        with overflow(self.dtype):
            y, context = self.layers.forward(micro_batch.inputs if self.first else x, micro_batch.noise)
            if self.loss is None:
                return y, 0.0, (context, None)
            if micro_batch.targets is None:
                return self.loss.last(y, micro_batch.last), 0.0, (context, None)
            total, of_loss = self.loss.forward(y, micro_batch.targets)
        return None, self.loss.total(total), (context, of_loss)

    def backward(self, context: Any, dy: Array | None, micro_batch: MicroBatch) -> Array:
        """The derivatives by the input; those by the weights are added to their gradients."""
        layers, of_loss = context
        with overflow(self.dtype), auxiliary.scaled(micro_batch.scale):
            return self.layers.backward(layers, self._start(of_loss, dy, micro_batch))

    def backward_input(self, context: Any, dy: Array | None, micro_batch: MicroBatch) -> tuple[Array, Any]:
        """The derivatives by the input, and what is pending."""
        layers, of_loss = context
        with overflow(self.dtype), auxiliary.scaled(micro_batch.scale):
            dx, pending = self.layers.backward_input(layers, self._start(of_loss, dy, micro_batch))
        return dx, (layers, pending)

    def backward_weight(self, pending: Any) -> None:
        """Add the derivatives by the weights to their gradients."""
        with overflow(self.dtype):
            self.layers.backward_weight(*pending)

    def _start(self, of_loss: Any, dy: Array | None, micro_batch: MicroBatch) -> Array:
        return dy if self.loss is None else self.loss.backward(of_loss, micro_batch.scale)
