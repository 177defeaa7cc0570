"""Replica: a rank's copy of a whole model."""

from collections.abc import Callable
from typing import Any, TypeAlias

from simdist.arrays import Array, hold
from simdist.collectives import broadcast
from simdist.comm import Communicator
from simdist.nn import Model, Noise, Observer
from simdist.parallel.method import Method
from simdist.parallel.recipe import Recipe
from simdist.parallel.spread import Spread

__all__ = ["Allocate", "ReplicaMethod"]

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
