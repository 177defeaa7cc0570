"""Worker: one rank's own copy of the weights, and its steps by its own gradient.

The local steps are the same in every method without a server; the methods differ in how workers average.
"""

from collections.abc import Callable
from typing import TypeAlias

from simdist.arrays import Array
from simdist.asynchronous.compute_time import ComputeTime, Constant
from simdist.comm import Communicator
from simdist.errors import ArrayError
from simdist.optim import SGD, Optimizer

__all__ = ["Asked", "Gradient", "Rate", "Worker"]

Gradient: TypeAlias = Callable[[Array, int], tuple[float, Array]]
"""gradient(weights, step) -> (loss, gradient), of this rank's own data; it does not change the weights."""

Rate: TypeAlias = float | Callable[[int], float]
"""A learning rate, or the learning rate as a function of the step."""

Asked: TypeAlias = Callable[[], bool]
"""asked() -> whether this rank has been asked to stop all ranks; called before or after a step."""


class Worker:
    """The weights of one rank, and its local steps.

    Args:
        comm: the ranks that train together.
        weights: shape (n,), floats, contiguous; changed in place.
        gradient: of this rank's data; see `Gradient`.
        learning_rate: of `optimizer`.
        optimizer: made for these weights; plain SGD if None.
        compute_time: extra time of each step's gradient, in addition to its actual computation.
        observe: called with (step, weights) when the weights have changed.

    Attributes:
        done: the number of steps made with these weights so far; set it to resume from there.
        losses: one per gradient, as `gradient` returns them.
        times_s: when each gradient was ready, on the communicator's clock.

    Raises:
        ArrayError: the weights are not a flat contiguous vector.
    """

    def __init__(
        self,
        comm: Communicator,
        weights: Array,
        gradient: Gradient,
        learning_rate: Rate,
        *,
        optimizer: Optimizer | None = None,
        compute_time: ComputeTime | None = None,
        observe: Callable[[int, Array], None] | None = None,
    ) -> None:
        if weights.ndim != 1 or not weights.flags.c_contiguous:
            raise ArrayError(f"weights of shape {weights.shape} on rank {comm.rank}; needs one contiguous vector")
        self.comm = comm
        self._weights = weights
        self.gradient = gradient
        self.optimizer = optimizer or SGD(weights, momentum=0.0)
        self.compute_time = compute_time or Constant()
        self.observe = observe or (lambda step, weights: None)
        self.losses: list[float] = []
        self.times_s: list[float] = []
        self.done = 0
        self._rate = learning_rate

    @property
    def weights(self) -> Array:
        """The vector that it was made with; others hold it, too, so it takes new values, but never another array."""
        return self._weights

    @weights.setter
    def weights(self, x: Array) -> None:
        if x is not self._weights:  # which it is after weights -= …
            raise ArrayError(f"another array of weights on rank {self.comm.rank}; needs new values: weights[...] = …")

    def find_gradient(self, step: int, weights: Array | None = None) -> Array:
        """The gradient at the own weights, or at those given; spends the extra time, and records the loss."""
        comm = self.comm
        start_s = comm.clock()
        with comm.span("compute"):
            loss, gradient = self.gradient(self.weights if weights is None else weights, step)
        self.compute_time.spend(comm, step, comm.clock() - start_s)
        self.losses.append(float(loss))
        self.times_s.append(comm.clock())
        return gradient

    def descend(self, gradient: Array, step: int) -> None:
        """Make this step, counted from 0, with this gradient."""
        rate = self._rate(step) if callable(self._rate) else self._rate
        with self.comm.span("update"):
            self.optimizer.step(self.weights, gradient, rate)
        self.done = step + 1
