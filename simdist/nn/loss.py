"""Loss: measures a model's predictions against the targets."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from simdist.arrays import Array, hold, kind_of
from simdist.errors import ArrayError
from simdist.nn import functional as f

__all__ = ["CrossEntropy", "Loss", "check_targets"]


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
        """The context is the probabilities, the targets, and the logits' shape and dtype.

        Raises:
            ArrayError: a target is none of the classes.
        """
        flat, classes = targets.reshape(-1), logits.shape[-1]
        check_targets(flat, logits, classes)
        total, p = f.cross_entropy(logits.reshape(len(flat), classes), flat)
        hold("activations", p, "loss")
        return total, (p, flat, logits.shape, logits.dtype)

    def backward(self, context: Any, scale: float) -> Array:
        """scale (p - 1 at the target)."""
        p, targets, shape, dtype = context
        return f.cross_entropy_backward(p, targets, scale, dtype).reshape(shape)

    def last(self, logits: Array, place: int = -1) -> Array:
        """Its row of the logits."""
        return logits if logits.ndim == 2 else logits[:, place]


def check_targets(targets: Array, logits: Array, classes: int) -> None:
    """Raise ArrayError if a target is none of so many classes: its loss would be that of no class."""
    if np.iinfo(targets.dtype).max < classes or not targets.size or kind_of(logits) == "phantom":
        return  # bytes are, in most models
    least, most = int(targets.min()), int(targets.max())
    if least < 0 or most >= classes:
        wrong = least if least < 0 else most
        raise ArrayError(f"a target is {wrong}; needs at least 0 and less than {classes}, the number of classes")
