"""SGD: stochastic gradient descent with momentum."""

import numpy as np

from simdist.arrays import Array, charge
from simdist.errors import ArgumentError, ArrayError

__all__ = ["SGD"]

# So much of each vector fits a core's cache at once, so memory is passed over once and not once an operation.
_BLOCK_BYTES = 1 << 17


class SGD:
    """v ← momentum · v + gradient;  weights ← weights - learning_rate · v.

    It updates whatever flat vector it was made for: a whole model's or the shard of one.

    Args:
        like: a vector of the length and dtype of the weights.
        momentum: at least 0 and below 1.

    Attributes:
        state: name -> flat vector of the length of the weights; here the velocity v, zero at first.

    Source: Sutskever, Martens, Dahl, Hinton 2013, ICML, section 2, with the learning rate outside of v.
    """

    def __init__(self, like: Array, momentum: float = 0.9) -> None:
        if not 0 <= momentum < 1:
            raise ArgumentError(f"momentum is {momentum}; needs at least 0 and less than 1")
        self.momentum = momentum
        self.state: dict[str, Array] = {"velocity": np.zeros_like(like)}
        self._block = max(1, _BLOCK_BYTES // like.itemsize)
        self._scratch = np.empty_like(like, shape=min(self._block, len(like)))

    def step(self, weights: Array, gradient: Array, learning_rate: float) -> None:
        """Change the weights, in place, by one step along the velocity.

        Cost: 4 operations an element; weights and velocity are read and written, the gradient is read.

        Raises:
            ArrayError: a vector's length is not that of the velocity.
        """
        velocity = self.state["velocity"]
        if weights.shape != velocity.shape or gradient.shape != velocity.shape:
            raise ArrayError(
                f"weights of shape {weights.shape} and a gradient of {gradient.shape}; this SGD needs {velocity.shape}"
            )
        for start in range(0, len(velocity), self._block):
            block = slice(start, start + self._block)
            v, w = velocity[block], weights[block]
            change = self._scratch[: len(v)]
            v *= self.momentum
            v += gradient[block]
            np.multiply(v, learning_rate, out=change)
            w -= change
        charge(4 * velocity.size, 5 * velocity.nbytes)
