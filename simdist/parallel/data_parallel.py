"""Data parallelism: every rank holds the whole model and works on its own part of the batch."""

from simdist.arrays import Array, clear
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.nn import Model, Noise
from simdist.parallel.buckets import Buckets
from simdist.parallel.holding import Holding
from simdist.parallel.method import GRADIENTS
from simdist.parallel.recipe import Recipe
from simdist.parallel.replica import Allocate, ReplicaMethod
from simdist.parallel.spread import Spread
from simdist.parallel.update import Update

__all__ = ["DataParallel"]


class DataParallel(ReplicaMethod):
    """A replica of the model on each rank. Replicas start equal and stay equal, because all ranks update them with the
    same gradient: the sum over the ranks of the gradients of their parts of the batch.

        rank 0     batch part 0     gradient of part 0  --+             +--> gradient of the batch
        rank 1     batch part 1     gradient of part 1  --+-all-reduce--+--> the same
        rank 2     batch part 2     gradient of part 2  --+             +--> the same

    Args:
        model, comm, recipe, seed, spread, memory: as of `ReplicaMethod`.
        algorithm: of the all-reduce of the gradient.
        bucket_bytes: reduce at least this much at a time during backward, by `Buckets`; None reduces all after it.

    Cost per rank and step, n bytes of gradient on p ranks: that of the all-reduce, 2n(p-1)/p bytes at least.
    """

    def __init__(
        self,
        model: Model,
        comm: Communicator,
        recipe: Recipe,
        seed: int,
        algorithm: str = "auto",
        bucket_bytes: int | None = None,
        spread: Spread | None = None,
        memory: Allocate | None = None,
    ) -> None:
        super().__init__(model, comm, recipe, seed, spread, memory)
        self.algorithm = algorithm
        parameters = model.parameters
        self.update = Update(self.weights, Holding.of_all(parameters.size), parameters, recipe, self.spread)
        self._buckets = None if bucket_bytes is None else Buckets(parameters, comm, bucket_bytes, algorithm)

    def backward(self, windows: Array, scale: float, noise: Noise | None = None, last: bool = True) -> float:
        """Add to `gradient`; after the last micro-batch it is the sum over all ranks."""
        total = self._backward(windows, scale, noise, self._buckets if last else None)
        if last:
            self.reduce()
        return total

    def reduce(self) -> None:
        """Sum `gradient` over all ranks. `backward` ends with this, and so must any other code that adds to it."""
        with self.comm.span(GRADIENTS, self.gradient.nbytes):
            if self._buckets:
                self._buckets.finish()
            else:
                all_reduce(self.gradient, self.comm, algorithm=self.algorithm)

    def zero_gradients(self) -> None:
        """See Method."""
        if self._buckets:
            self._buckets.wait()
        super().zero_gradients()

    def step(self, learning_rate: float) -> bool:
        """Every rank updates its replica in the same way."""
        with self.comm.span("update"):
            changed = self.update.step(self.gradient, learning_rate)
            clear(self.gradient)
        return changed
