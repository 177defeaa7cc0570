"""Root: one rank that updates the weights of all."""

from simdist.arrays import Array, clear
from simdist.collectives import broadcast, reduce
from simdist.comm import Communicator
from simdist.parallel.holding import Holding
from simdist.parallel.method import GRADIENTS
from simdist.parallel.recipe import Recipe
from simdist.parallel.replica import Replica
from simdist.parallel.spread import Spread
from simdist.parallel.update import Update

__all__ = ["Root"]


class Root:
    """Weights that only rank 0 updates: it alone has masters and optimizer state; the others copy its weights.

        rank 0     gradient 0 --+--> sum --> update --> weights --+--> weights
        rank 1     gradient 1 --+                                 +--> the same
        rank 2     gradient 2 --+                                 +--> the same
                            `step`                           `send_weights`

    Args:
        replica: this rank's.
        recipe, spread: as of `Learner`.
        reduce, broadcast: the algorithms for gradients to rank 0, and for weights from it.

    Attributes:
        update: of all weights on rank 0, and of none elsewhere.
    """

    def __init__(self, replica: Replica, recipe: Recipe, spread: Spread, reduce: str, broadcast: str) -> None:
        self._replica = replica
        self._reduce, self._broadcast = reduce, broadcast
        self._own = slice(0, len(replica.weights) if replica.comm.rank == 0 else 0)
        parameters = replica.model.parameters
        self.update = Update(replica.weights[self._own], Holding([self._own]), parameters, recipe, spread)

    @property
    def _comm(self) -> Communicator:
        return self._replica.comm

    def step(self, learning_rate: float) -> bool:
        """Sum the gradients on rank 0, update its weights by the sum, and clear the gradients on all ranks.

        Returns:
            Whether rank 0 changed its weights; the same on all ranks.
        """
        gradient: Array = self._replica.gradient
        with self._comm.span(GRADIENTS, gradient.nbytes):
            reduce(gradient, self._comm, 0, algorithm=self._reduce)
        with self._comm.span("update"):
            changed = self.update.step(gradient[self._own], learning_rate)
            clear(gradient)
        return changed

    def send_weights(self) -> None:
        """Broadcast the weights of rank 0."""
        weights = self._replica.weights
        with self._comm.span("weights from root", weights.nbytes):
            broadcast(weights, self._comm, 0, self._broadcast)
