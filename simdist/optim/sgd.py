"""SGD: stochastic gradient descent, with momentum."""

from collections.abc import Iterable

import numpy as np

from simdist.arrays import Array, charge
from simdist.errors import ArgumentError, require_share
from simdist.optim.optimizer import Optimizer

__all__ = ["SGD"]


class SGD(Optimizer):
    """v ← momentum · v + gradient + weight_decay · weights;  weights ← weights - learning_rate · v.

    Args:
        like, decay, start: as in `Optimizer`.
        momentum: at least 0 and below 1.
        nesterov: step by gradient + weight_decay · weights + momentum · v instead of v; needs momentum.
        weight_decay: at least 0; here an L2 penalty, a part of the gradient.

    Attributes:
        state: "velocity", v, zero at first; empty without momentum.

    Raises:
        ArgumentError: an argument is outside its limits.

    Cost per step and weight: 4 operations, 6 with nesterov, 2 without momentum, and with weight decay 2 more; weights
    and velocity are read and written, the gradient is read.

    Source: Sutskever, Martens, Dahl, Hinton 2013, ICML, section 2, with the learning rate outside of v.
    """

    def __init__(
        self,
        like: Array,
        momentum: float = 0.9,
        *,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        decay: Iterable[slice] | None = None,
        start: int = 0,
    ) -> None:
        require_share("momentum", momentum)
        if nesterov and not momentum:
            raise ArgumentError(f"nesterov with momentum {momentum}; needs more than 0")
        super().__init__(like, decay, start, weight_decay)
        self.momentum = momentum
        self.nesterov = nesterov
        if momentum:
            self.state = {"velocity": np.zeros_like(like)}

    def _update(self, weights: Array, gradient: Array, rate: float, scale: float) -> None:
        velocity = self.state.get("velocity")
        for block in self._blocks:
            w, g = weights[block], self._read(gradient, block, scale, copy=self.weight_decay > 0)
            change = self._spare[0][: len(w)]
            self._penalize(g, w, block, change)
            if velocity is not None:
                v = velocity[block]
                np.multiply(v, self.momentum, out=v)
                np.add(v, g, out=v)
                if self.nesterov:
                    np.multiply(v, self.momentum, out=change)
                    g = np.add(change, g, out=change)
                else:
                    g = v
            np.multiply(g, rate, out=change)
            np.subtract(w, change, out=w)
        charge(
            (2 + 2 * (self.momentum > 0) + 2 * self.nesterov + 2 * (self.weight_decay > 0)) * weights.size,
            (4 if self.momentum else 2) * weights.nbytes + gradient.nbytes,
        )
