"""Loss: cross-entropy of logits that are split over ranks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from simdist.arrays import Array, hold
from simdist.collectives import all_gather, all_reduce, broadcast
from simdist.comm import Communicator
from simdist.nn import Loss
from simdist.nn import functional as f
from simdist.nn.loss import check_targets
from simdist.parallel.sequence.split import Split
from simdist.parallel.total import total

__all__ = ["VocabularyParallelCrossEntropy"]


@dataclass(eq=False)
class VocabularyParallelCrossEntropy(Loss):
    """-log softmax(logits)[target], with the logits of a part of the vocabulary on each rank.

        z       logits of an example      m = max z       S = Σ exp(z - m)       loss = log S - (z[target] - m)

        rank 0  | z z z z . . . . |  --+  all-reduce max: m   --+  all-reduce sum: S,
        rank 1  | . . . . z z z z |  --+                      --+  and z[target] - m from the rank that has it

    So three numbers are sent per example, instead of its logits.

    Args:
        comm: the ranks that share the vocabulary.
        split: the tokens of a text whose logits this rank has; all, if not given.
        algorithm: of the all-reduces.

    Cost per rank of e examples: forward two all-reduces, of e and of 2e items of the working dtype, and if texts are
    split one of 8 bytes, to sum the losses of all tokens. Backward sends nothing.

    Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3.
    """

    comm: Communicator
    split: Split | None = None
    algorithm: str = "auto"

    def forward(self, logits: Array, targets: Array) -> tuple[float, Any]:
        """The context is this rank's probabilities, the targets, and the logits' shape and dtype."""
        if self.split is not None:
            targets = self.split.part(targets)
        flat, classes = targets.reshape(-1), logits.shape[-1]
        check_targets(flat, logits, self.comm.size * classes)
        loss, p = f.cross_entropy(logits.reshape(len(flat), classes), flat, self.comm.rank * classes, self._combine)
        hold("activations", p, "loss")
        return loss, (p, flat, logits.shape, logits.dtype)

    def backward(self, context: Any, scale: float) -> Array:
        """scale (p - 1 at the target), for this rank's part of the vocabulary."""
        p, targets, shape, dtype = context
        return f.cross_entropy_backward(p, targets, scale, dtype, self.comm.rank * shape[-1]).reshape(shape)

    def total(self, own: float) -> float:
        """The sum over the ranks that share texts."""
        if self.split is None or self.split.comm.size == 1:
            return own
        return total(own, self.split.comm)

    def last(self, logits: Array, place: int = -1) -> Array:
        """The logits of all classes, gathered; from the rank with the last token. place: negative, from the end."""
        n, count, classes = logits.shape
        own = np.empty_like(logits, shape=(n, classes))
        if self.split is None or self.split.comm.size == 1:
            own[...] = logits[:, place]
        else:
            whole = count * self.split.comm.size
            owner, at = self.split.place_of(whole + place, whole)
            own[...] = logits[:, at]  # on other ranks a wrong token, which the broadcast replaces
            broadcast(own, self.split.comm, owner)
        if self.comm.size == 1:
            return own
        parts = np.empty_like(own, shape=(self.comm.size, *own.shape))
        all_gather(own, self.comm, self.algorithm, out=parts)
        last: Array = parts.transpose(1, 0, 2).reshape(len(own), -1)
        return last

    def _combine(self, values: Array, op: str) -> None:
        if self.comm.size > 1:
            all_reduce(values, self.comm, op, self.algorithm)
