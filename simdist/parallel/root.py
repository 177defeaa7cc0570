"""Root: one rank that updates the weights of all."""

from dataclasses import replace
from typing import ClassVar

from simdist.arrays import clear
from simdist.collectives import broadcast, reduce
from simdist.comm import Communicator
from simdist.nn import Model
from simdist.parallel.holding import Holding
from simdist.parallel.method import GRADIENTS
from simdist.parallel.recipe import Recipe
from simdist.parallel.replica import ReplicaMethod
from simdist.parallel.update import Update

__all__ = ["RootMethod"]


class RootMethod(ReplicaMethod):
    """A method whose rank 0 alone has masters and optimizer state; the others copy its weights.

        rank 0     gradient 0 --+--> sum --> update --> weights --+--> weights
        rank 1     gradient 1 --+                                 +--> the same
        rank 2     gradient 2 --+                                 +--> the same
                        `_reduce_and_update`             `_send_weights`

    Args:
        model, comm, recipe, seed: as of `ReplicaMethod`.

    Attributes:
        update: of all weights on rank 0, and of none elsewhere, where no norm of their gradient is known either.
    """

    _algorithm: ClassVar[str]  # of the reduction to rank 0, and of the broadcast from it

    def __init__(self, model: Model, comm: Communicator, recipe: Recipe, seed: int) -> None:
        super().__init__(model, comm, recipe, seed)
        self._own = own = slice(0, len(self.weights) if comm.rank == 0 else 0)
        recipe = recipe if comm.rank == 0 else replace(recipe, max_norm=None)
        self.update = Update(self.weights[own], Holding([own]), model.parameters, recipe, self.spread)

    def _reduce_and_update(self, learning_rate: float) -> bool:
        """Sum the gradients on rank 0, update its weights by the sum, and clear the gradients on all ranks.

        Returns:
            Whether rank 0 changed its weights; the same on all ranks.
        """
        with self.comm.span(GRADIENTS, self.gradient.nbytes):
            reduce(self.gradient, self.comm, 0, algorithm=self._algorithm)
        with self.comm.span("update"):
            changed = self.update.step(self.gradient[self._own], learning_rate)
            clear(self.gradient)
        return changed

    def _send_weights(self) -> None:
        """Broadcast the weights of rank 0."""
        with self.comm.span("weights from root", self.weights.nbytes):
            broadcast(self.weights, self.comm, 0, self._algorithm)
