"""Data parallelism: every rank holds the whole model and works on its own part of the batch."""

from collections.abc import Callable
from typing import Any, TypeAlias

from simdist.arrays import Array, clear, hold
from simdist.collectives import all_reduce, broadcast
from simdist.comm import Communicator
from simdist.nn import Model, Noise, Observer
from simdist.parallel.buckets import Buckets
from simdist.parallel.holding import Holding
from simdist.parallel.method import GRADIENTS, Method
from simdist.parallel.recipe import Recipe
from simdist.parallel.spread import Spread
from simdist.parallel.update import Update

__all__ = ["Allocate", "DataParallel", "ReplicaMethod"]

Allocate: TypeAlias = Callable[[int, Any], Array]
"""allocate(items, dtype) -> a new array: `comm.empty`, or `phantom` for a model too big to hold."""


class ReplicaMethod(Method):
    """A method with a replica of the model on each rank: its weights and gradients in two flat vectors.

    Args:
        model, comm, recipe, spread: as of `Learner`.
        seed: of the first weights, which rank 0 draws and broadcasts.
        memory: makes the vectors; `comm.empty` if not given.
    """

    def __init__(
        self,
        model: Model,
        comm: Communicator,
        recipe: Recipe,
        seed: int,
        spread: Spread | None = None,
        memory: Allocate | None = None,
    ) -> None:
        super().__init__(model, comm, recipe, spread)
        parameters, dtype, memory = model.parameters, recipe.precision.dtype, memory or comm.empty
        parameters.bind(memory(parameters.size, dtype), memory(parameters.size, dtype))
        hold("parameters", self.weights)
        hold("gradients", self.gradient)
        if comm.rank == 0:
            parameters.initialize(seed)
        with comm.span("initial weights", self.weights.nbytes):
            broadcast(self.weights, comm)
        self.gradient[...] = 0

    @property
    def weights(self) -> Array:
        """The flat vector of all weights."""
        return self.model.parameters.data

    @property
    def gradient(self) -> Array:
        """The flat vector of all gradients."""
        return self.model.parameters.gradient

    def backward(self, windows: Array, scale: float, noise: Noise | None = None, last: bool = True) -> float:
        """See Method. Adds to `gradient`; sends nothing."""
        return self._backward(windows, scale, noise)

    def _backward(self, windows: Array, scale: float, noise: Noise | None, observer: Observer | None = None) -> float:
        with self.comm.span("forward"):
            total, context = self.model.forward(windows, noise)
        with self.comm.span("backward"):
            self.model.backward(context, scale * self.update.scale, observer)
        return total

    def loss(self, windows: Array) -> float:
        """See Learner. Sends nothing."""
        return self.model.forward(windows)[0]


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
        """See Learner."""
        if self._buckets:
            self._buckets.wait()
        super().zero_gradients()

    def step(self, learning_rate: float) -> bool:
        """Every rank updates its replica in the same way."""
        with self.comm.span("update"):
            changed = self.update.step(self.gradient, learning_rate)
            clear(self.gradient)
        return changed
