"""Adam: steps of about the same size for every weight, whatever the size of its gradient."""

from collections.abc import Iterable

import numpy as np

from simdist.arrays import Array, charge
from simdist.optim.moments import Moments
from simdist.optim.optimizer import Optimizer

__all__ = ["Adam"]


class Adam(Optimizer):
    """weights ← weights - learning_rate · m̂ / (√v̂ + ε), with the means m and v of `Moments`.

    Args:
        like, decay, start: as of `Optimizer`.
        betas, epsilon: as of `Moments`.
        weight_decay: at least 0; here an L2 penalty, a part of the gradient. AdamW keeps it apart.

    Attributes:
        state: "m" and "v", zero at first.

    Cost a step, per weight: 12 operations; weights, m and v are read and written, the gradient is read.

    Source: Kingma and Ba 2015, arXiv 1412.6980, algorithm 1.
    """

    def __init__(
        self,
        like: Array,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        decay: Iterable[slice] | None = None,
        start: int = 0,
    ) -> None:
        super().__init__(like, decay, start)
        self.moments = Moments(betas, epsilon, weight_decay)
        self.state = self.moments.zeros(like)

    def _update(self, weights: Array, gradient: Array, rate: float, scale: float) -> None:
        for block in self._blocks:
            w, m, v = weights[block], self.state["m"][block], self.state["v"][block]
            g = self._read(gradient, block, scale, copy=self.moments.weight_decay > 0)
            spare = self._spare[0][: len(w)]
            if self.moments.weight_decay:
                for part in self._decayed(block):
                    np.multiply(w[part], self.moments.weight_decay, out=spare[part])
                    np.add(g[part], spare[part], out=g[part])
            self.moments.update(m, v, g, spare)
            self.moments.direction(m, v, self.num_steps, rate, out=spare)
            np.subtract(w, spare, out=w)
        charge(12 * weights.size, 6 * weights.nbytes + gradient.nbytes)
