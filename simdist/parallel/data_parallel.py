"""Data parallelism: every rank holds the whole model and works on its own part of the batch."""

from typing import Any

from simdist.arrays import Array
from simdist.collectives import all_reduce, broadcast
from simdist.comm import Communicator
from simdist.nn import Model, Noise

__all__ = ["GRADIENTS", "DataParallel"]

GRADIENTS = "synchronize gradients"
"""The span around a step's reduction."""


class DataParallel:
    """A model of which each rank holds a copy. The copies start alike and stay so, for all ranks change them
    by the same gradient: the sum over the ranks of what each found in its part of the batch.

        rank 0     batch part 0     gradient of part 0  --+             +--> gradient of the batch
        rank 1     batch part 1     gradient of part 1  --+-all-reduce--+--> the same
        rank 2     batch part 2     gradient of part 2  --+             +--> the same

    Args:
        model: not yet bound to memory; it gets two flat vectors from `comm.empty`.
        comm: the ranks that share the batch. All of them must call, here and in every method.
        dtype: of weights and gradients.
        seed: of the first weights, which rank 0 draws and broadcasts.
        algorithm: of the all-reduce of the gradient.

    Cost per rank and step, n bytes of gradient on p ranks: that of the all-reduce, 2n(p-1)/p bytes at least.
    """

    def __init__(self, model: Model, comm: Communicator, dtype: Any, seed: int, algorithm: str = "auto") -> None:
        self.model = model
        self.comm = comm
        self.algorithm = algorithm
        size = model.parameters.size
        model.parameters.bind(comm.empty(size, dtype), comm.empty(size, dtype))
        if comm.rank == 0:
            model.parameters.initialize(seed)
        with comm.span("initial weights", self.weights.nbytes):
            broadcast(self.weights, comm)

    @property
    def weights(self) -> Array:
        """The flat vector of all weights."""
        return self.model.parameters.data

    @property
    def gradient(self) -> Array:
        """The flat vector of all gradients."""
        return self.model.parameters.gradient

    def backward(self, windows: Array, scale: float, noise: Noise | None = None) -> float:
        """Leave in `gradient` the derivatives of scale * the loss summed over the windows of all ranks.

        With scale = 1 / (targets in the global batch) that is the gradient of the batch's mean loss, however
        the batch is cut: each window weighs the same, and a rank may have none.

        Args:
            windows: this rank's part of the batch, shape (n, length), uint8.
            noise: which windows of the batch these are, for dropout; without it nothing is dropped.

        Returns:
            The loss summed over this rank's own windows, in nats.
        """
        self.gradient[...] = 0
        with self.comm.span("forward"):
            total, context = self.model.forward(windows, noise)
        with self.comm.span("backward"):
            self.model.backward(context, scale)
        with self.comm.span(GRADIENTS, self.gradient.nbytes):
            all_reduce(self.gradient, self.comm, algorithm=self.algorithm)
        return total
