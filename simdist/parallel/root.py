"""Root: one rank that updates the weights of all."""

from dataclasses import replace

from simdist.arrays import clear
from simdist.collectives import broadcast, reduce
from simdist.parallel.holding import Holding
from simdist.parallel.method import GRADIENTS
from simdist.parallel.replica import ReplicaMethod
from simdist.parallel.update import Update

__all__ = ["Root"]


class Root:
    """Weights that only rank 0 updates: it alone has masters and optimizer state; the others copy its weights.

        rank 0     gradient 0 --+--> sum --> update --> weights --+--> weights
        rank 1     gradient 1 --+                                 +--> the same
        rank 2     gradient 2 --+                                 +--> the same
                            `step`                           `send_weights`

    Args:
        method: has the weights and gradients.
        reduce, broadcast: the algorithms for gradients to rank 0, and for weights from it.

    Attributes:
        update: of all weights on rank 0, and of none elsewhere, where no norm of their gradient is known either.
    """

    def __init__(self, method: ReplicaMethod, reduce: str, broadcast: str) -> None:
        self._method, self._comm = method, method.comm
        self._reduce, self._broadcast = reduce, broadcast
        updates, recipe = method.comm.rank == 0, method.recipe
        self._own = own = slice(0, len(method.weights) if updates else 0)
        recipe = recipe if updates else replace(recipe, max_norm=None)
        self.update = Update(method.weights[own], Holding([own]), method.model.parameters, recipe, method.spread)

    def step(self, learning_rate: float) -> bool:
        """Sum the gradients on rank 0, update its weights by the sum, and clear the gradients on all ranks.

        Returns:
            Whether rank 0 changed its weights; the same on all ranks.
        """
        gradient = self._method.gradient
        with self._comm.span(GRADIENTS, gradient.nbytes):
            reduce(gradient, self._comm, 0, algorithm=self._reduce)
        with self._comm.span("update"):
            changed = self.update.step(gradient[self._own], learning_rate)
            clear(gradient)
        return changed

    def send_weights(self) -> None:
        """Broadcast the weights of rank 0."""
        weights = self._method.weights
        with self._comm.span("weights from root", weights.nbytes):
            broadcast(weights, self._comm, 0, self._broadcast)
