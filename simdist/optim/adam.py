"""Adam: steps of about equal size for every weight, regardless of the size of its gradient."""

import numpy as np

from simdist.arrays import Array, charge
from simdist.optim.moments import Moments

__all__ = ["Adam"]


class Adam(Moments):
    """weights ← weights - learning_rate · m̂ / (√v̂ + ε), with the means m and v of `Moments`, and its arguments.

    Weight decay is an L2 penalty here, a part of the gradient; AdamW decouples it.

    Cost per step and weight: 12 operations, 14 with weight decay; weights, m and v are read and written, the gradient
    is read.

    Source: Kingma and Ba 2015, arXiv 1412.6980, algorithm 1.
    """

    def _update(self, weights: Array, gradient: Array, rate: float, scale: float) -> None:
        for block in self._blocks:
            w, m, v = weights[block], self.state["m"][block], self.state["v"][block]
            g = self._read(gradient, block, scale, copy=self.weight_decay > 0)
            spare = self._spare[0][: len(w)]
            self._penalize(g, w, block, spare)
            self._update_moments(m, v, g, spare)
            self._write_direction(m, v, rate, out=spare)
            np.subtract(w, spare, out=w)
        charge((12 + 2 * (self.weight_decay > 0)) * weights.size, 6 * weights.nbytes + gradient.nbytes)
