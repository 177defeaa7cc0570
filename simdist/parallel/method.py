"""Method: many ranks train one model as one rank would. A learner is more general: its weights may differ."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from simdist.arrays import Array, clear
from simdist.comm import Communicator
from simdist.errors import require_kind
from simdist.nn import Model, Noise
from simdist.parallel.holding import Shard
from simdist.parallel.recipe import Recipe
from simdist.parallel.spread import Spread
from simdist.parallel.update import Update

__all__ = ["GRADIENTS", "Learner", "Method"]

GRADIENTS = "synchronize gradients"
"""The span around a step's reduction, or around the part of it that is left after backward."""


class Learner(ABC):
    """A model, and how its training is distributed over ranks.

        total = learner.train(micro_batches, scale, learning_rate, noise)     # this rank's part of a batch

    Args:
        model: not yet bound to memory.
        comm: the ranks that share each batch. All of them must call, here and in every method.
        recipe: the update rule; equal on all ranks.
        spread: how other axes split the model; comm is then the data axis.

    Attributes:
        update: updates this rank's weights.
        num_updates: the number of updates per batch.

    Raises:
        ArgumentError: the spread does not know of one of the model's parameters: see `Spread.check`.
    """

    update: Update
    num_updates = 1
    _in_step = False  # whether `train` has begun a step and not ended it

    def __init__(self, model: Model, comm: Communicator, recipe: Recipe, spread: Spread | None = None) -> None:
        require_kind("model", model, Model, "simdist.nn.gpt(shape)")
        require_kind("comm", comm, Communicator)
        require_kind("recipe", recipe, Recipe, 'Recipe("adamw")')
        self.model = model
        self.comm = comm
        self.recipe = recipe
        self.spread = spread or Spread(comm)
        self.spread.check(model.parameters)

    @property
    def item_bytes(self) -> int:
        """Bytes of one item of a message; collectives cut arrays between items."""
        return self.recipe.precision.dtype.itemsize

    @abstractmethod
    def train(
        self, windows: Sequence[Array], scale: float, learning_rate: float, noise: Sequence[Noise] | None = None
    ) -> float:
        """Change the weights by the gradient of a batch.

        Args:
            windows: of each of this rank's micro-batches, shape (n, length), uint8; n may be 0.
            scale: the summed loss is multiplied by it before backward: with num_updates / (targets in the global
                batch) all windows have the same weight, and each update uses the gradient of a mean loss.
            learning_rate: of this batch.
            noise: for dropout, the windows of the batch in each micro-batch; without it nothing is dropped.

        Returns:
            The loss summed over these windows, in nats.
        """

    def zero_gradients(self) -> None:
        """Drop the gradients since the last update, to go on after an exception that all ranks have had at the same
        place. `train` begins with it after a call that raised.
        """
        for p in self.model.parameters:
            clear(p.gradient)

    @abstractmethod
    def loss(self, windows: Array) -> float:
        """The loss summed over these windows, in nats, without dropout. Ranks must call the same number of times."""

    def logits(self, tokens: Array) -> Array:
        """The logits of the next token after each row: see `Model.logits`. Ranks must call the same number of times."""
        return self.model.logits(tokens)

    def vectors(self) -> dict[str, list[Shard]]:
        """This rank's part of the weights and the optimizer's state, for a checkpoint: see `Update`."""
        return self.update.vectors()

    def numbers(self) -> dict[str, float]:
        """The state that is the same on all ranks, for a checkpoint."""
        return self.update.numbers()

    def restore(self, vectors: Mapping[str, Sequence[Shard]], numbers: Mapping[str, float]) -> None:
        """Resume from what `vectors` and `numbers` returned, perhaps from another method on other ranks."""
        self.update.restore(vectors, numbers)


class Method(Learner):
    """A learner that makes one update per batch, by the gradient of the whole batch.

        for windows in micro_batches:                                   # this rank's part of the batch
            total += method.backward(windows, scale, noise, last=…)     # gradients add up
        method.step(learning_rate)                                      # over the ranks, then new weights

    The weights after a step equal those of one rank with the whole batch, up to rounding; a method that differs by
    more says so.
    """

    @abstractmethod
    def backward(self, windows: Array, scale: float, noise: Noise | None = None, last: bool = True) -> float:
        """Forward and backward: add the derivatives of scale * the summed loss to the gradient of the batch.

        With scale = 1 / (targets in the global batch) this is the gradient of the batch's mean loss, for any split
        of the batch: all windows have the same weight, and a rank may have none.

        Args:
            windows: this rank's micro-batch, shape (n, length), uint8.
            noise: for dropout, which windows of the batch these are; without it nothing is dropped.
            last: whether it is this rank's last before `step`, so that the reduction of gradients may begin.

        Returns:
            The loss summed over these windows, in nats.
        """

    @abstractmethod
    def step(self, learning_rate: float) -> bool:
        """Finish the reduction of gradients, update the weights by them, and reset them.

        Returns:
            Whether the weights were updated: not if a scaled loss overflowed on any rank.
        """

    def train(
        self, windows: Sequence[Array], scale: float, learning_rate: float, noise: Sequence[Noise] | None = None
    ) -> float:
        """See Learner.

        Raises:
            ArrayError: the step gave a parameter another array; see `Parameters.check_views`.
        """
        if self._in_step:
            self.zero_gradients()
        self._in_step = True
        total, last = 0.0, len(windows) - 1
        for i, each in enumerate(windows):
            total += self.backward(each, scale, None if noise is None else noise[i], last=i == last)
        self.step(learning_rate)
        self._in_step = False
        self.model.parameters.check_views()
        return total
