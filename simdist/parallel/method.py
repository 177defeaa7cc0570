"""Method: a way for many ranks to train one model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from simdist.arrays import Array
from simdist.comm import Communicator
from simdist.nn import Model, Noise
from simdist.parallel.holding import Shard
from simdist.parallel.recipe import Recipe
from simdist.parallel.spread import Spread
from simdist.parallel.update import Update

__all__ = ["GRADIENTS", "Method"]

GRADIENTS = "synchronize gradients"
"""The span around a step's reduction, or around what is left of it when backward is over."""


class Method(ABC):
    """A model, and which rank holds and does what of its training.

        for windows in micro_batches:                                   # this rank's part of the batch
            total += method.backward(windows, scale, noise, last=…)     # gradients add up
        method.step(learning_rate)                                      # over the ranks, then new weights

    Whatever the method, the weights after a step are those of one rank with the whole batch, up to rounding;
    a method that differs by more says so.

    Args:
        model: not yet bound to memory.
        comm: the ranks that share each batch. All of them must call, here and in every method.
        recipe: how weights change; equal on all ranks.
        spread: how other axes cut the model, where they do: then comm is the data axis.

    Attributes:
        update: what changes this rank's weights.
    """

    update: Update

    def __init__(self, model: Model, comm: Communicator, recipe: Recipe, spread: Spread | None = None) -> None:
        self.model = model
        self.comm = comm
        self.recipe = recipe
        self.spread = spread or Spread(comm)

    @abstractmethod
    def backward(self, windows: Array, scale: float, noise: Noise | None = None, last: bool = True) -> float:
        """Forward and backward: add the derivatives of scale * the summed loss to the gradient of the batch.

        With scale = 1 / (targets in the global batch) that is the gradient of the batch's mean loss, however
        the batch is cut: each window weighs the same, and a rank may have none.

        Args:
            windows: this rank's micro-batch, shape (n, length), uint8.
            noise: which windows of the batch these are, for dropout; without it nothing is dropped.
            last: whether it is this rank's last before `step`, so that ranks may begin to add gradients up.

        Returns:
            The loss summed over these windows, in nats.
        """

    @abstractmethod
    def step(self, learning_rate: float) -> bool:
        """Add up what is left of the gradients, change the weights by them, and forget them.

        Returns:
            Whether the weights were changed: not if a scaled loss overflowed on any rank.
        """

    @abstractmethod
    def loss(self, windows: Array) -> float:
        """The loss summed over these windows, in nats; nothing is dropped. All ranks must call as often."""

    def logits(self, tokens: Array) -> Array:
        """What may come next after each row of tokens: see `Model.logits`. All ranks must call as often."""
        return self.model.logits(tokens)

    def vectors(self) -> dict[str, list[Shard]]:
        """What this rank keeps of the weights and of the optimizer's state, for a checkpoint: see `Update`."""
        return self.update.vectors()

    def numbers(self) -> dict[str, float]:
        """What all ranks keep alike, for a checkpoint."""
        return self.update.numbers()

    def restore(self, vectors: Mapping[str, Sequence[Shard]], numbers: Mapping[str, float]) -> None:
        """Go on from what `vectors` and `numbers` gave, maybe by another method on other ranks."""
        self.update.restore(vectors, numbers)
