"""Loss: measures a model's predictions against the targets."""

from abc import ABC, abstractmethod
from typing import Any

from simdist.arrays import Array, hold
from simdist.nn import functional as f

__all__ = ["CrossEntropy", "Loss"]


class Loss(ABC):
    """The end of a model: compares the output of its last layer with the targets.

    total, context = loss.forward(logits, targets)      of a batch, in nats
    dlogits = loss.backward(context, scale)             of scale * total
    """

    @abstractmethod
    def forward(self, logits: Array, targets: Array) -> tuple[float, Any]:
        """The sum of the losses of the targets, in nats, and what backward needs.

        Args:
            logits: shape (…, classes), as the last layer gives them.
            targets: integers below classes; those of the whole text, even if the logits are of a part of it.
        """

    @abstractmethod
    def backward(self, context: Any, scale: float) -> Array:
        """The derivatives of scale * the sum by the logits, of their shape and dtype."""

    def total(self, own: float) -> float:
        """The loss of the batch, from that of `forward` for this part of the texts."""
        return own

    @abstractmethod
    def last(self, logits: Array, place: int = -1) -> Array:
        """The logits of each text's last token: shape (n, classes), all classes.

        Args:
            place: the index of that token, counted from the end, -1: texts may have been padded.
        """


class CrossEntropy(Loss):
    """-log softmax(logits)[target], where one process has all logits."""

    def forward(self, logits: Array, targets: Array) -> tuple[float, Any]:
        """The context is the probabilities, the targets, and the logits' shape and dtype."""
        flat = targets.reshape(-1)
        total, p = f.cross_entropy(logits.reshape(len(flat), logits.shape[-1]), flat)
        hold("activations", p, "loss")
        return total, (p, flat, logits.shape, logits.dtype)

    def backward(self, context: Any, scale: float) -> Array:
        """scale (p - 1 at the target)."""
        p, targets, shape, dtype = context
        return f.cross_entropy_backward(p, targets, scale, dtype).reshape(shape)

    def last(self, logits: Array, place: int = -1) -> Array:
        """Its row of the logits."""
        return logits.reshape(len(logits), -1, logits.shape[-1])[:, place]
