"""Loss: how good a model's predictions are."""

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
            targets: integers below classes; of the text at hand all of them, even where logits are of a part.
        """

    @abstractmethod
    def backward(self, context: Any, scale: float) -> Array:
        """The derivatives of scale * the sum by the logits, of their shape and dtype."""

    def total(self, own: float) -> float:
        """The loss of the batch, from what `forward` found of the texts' part at hand."""
        return own

    @abstractmethod
    def last(self, logits: Array, place: int = -1) -> Array:
        """What is said of each text's last token: shape (n, classes), all classes.

        Args:
            place: which one that is, counted from the end, -1: texts may have been made longer.
        """


class CrossEntropy(Loss):
    """-log softmax(logits)[target], with all logits at hand."""

    def forward(self, logits: Array, targets: Array) -> tuple[float, Any]:
        """The context is the probabilities and where they are."""
        flat = targets.reshape(-1)
        total, p = f.cross_entropy(logits.reshape(len(flat), logits.shape[-1]), flat)
        hold("activations", p, "loss")
        return total, (p, flat, logits.shape, logits.dtype)

    def backward(self, context: Any, scale: float) -> Array:
        """scale (p - 1 at the target)."""
        p, targets, shape, dtype = context
        return f.cross_entropy_backward(p, targets, scale, dtype).reshape(shape)

    def last(self, logits: Array, place: int = -1) -> Array:
        """Its row."""
        last: Array = logits.reshape(len(logits), -1, logits.shape[-1])[:, place]
        return last
