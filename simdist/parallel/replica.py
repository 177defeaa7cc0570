"""Replica: a rank's copy of a whole model."""

from collections.abc import Callable
from typing import Any, TypeAlias

from simdist.arrays import Array, hold
from simdist.collectives import broadcast
from simdist.comm import Communicator
from simdist.nn import Model, Noise, Observer

__all__ = ["Allocate", "Replica"]

Allocate: TypeAlias = Callable[[int, Any], Array]
"""allocate(items, dtype) -> a new array: `comm.empty`, or `phantom` for a model too big to hold."""


class Replica:
    """A model with its weights and gradients in two flat vectors; the weights start equal on all ranks.

    Args:
        model: not yet bound to memory; it gets two flat vectors.
        comm: the ranks with a copy each; all must call.
        dtype: of weights and gradients.
        seed: of the first weights, which rank 0 draws and broadcasts.
        memory: makes the vectors; `comm.empty` if not given.
    """

    def __init__(self, model: Model, comm: Communicator, dtype: Any, seed: int, memory: Allocate | None = None) -> None:
        self.model = model
        self.comm = comm
        parameters, memory = model.parameters, memory or comm.empty
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

    def backward(
        self, windows: Array, scale: float, noise: Noise | None = None, observer: Observer | None = None
    ) -> float:
        """Forward and backward: add the derivatives of scale * the summed loss to `gradient`; returns the loss."""
        with self.comm.span("forward"):
            total, context = self.model.forward(windows, noise)
        with self.comm.span("backward"):
            self.model.backward(context, scale, observer)
        return total

    def loss(self, windows: Array) -> float:
        """The loss summed over these windows, in nats, without dropout."""
        return self.model.forward(windows)[0]
