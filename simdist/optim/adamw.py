"""AdamW: Adam with decoupled weight decay."""

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from simdist.arrays import Array, charge, moved
from simdist.arrays.fused import kernel
from simdist.optim.moments import Moments

__all__ = ["AdamW"]


class AdamW(Moments):
    """weights ← (1 - learning_rate · weight_decay) · weights - learning_rate · m̂ / (√v̂ + ε).

    In Adam the penalty is divided by √v̂ like the rest of the gradient, so weights with large gradients hardly
    decay. Here all decay at the same rate.

    Args:
        like, betas, epsilon, weight_decay, decay, start: as in `Moments`.

    Cost per step and weight: 13 operations, one of them for weight decay; weights, m and v are read and
    written, the gradient is read.

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2, with the decay times the learning rate, as
    in PyTorch.
    """

    def __init__(
        self,
        like: Array,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        decay: Iterable[slice] | None = None,
        start: int = 0,
    ) -> None:
        super().__init__(like, betas=betas, epsilon=epsilon, weight_decay=weight_decay, decay=decay, start=start)

    def _update(self, weights: Array, gradient: Array, rate: float, scale: float) -> None:
        step = kernel("adamw", "adamw", weights)
        if step is not None:
            given = self.betas, self.epsilon, self.num_steps, rate, 1 - rate * self.weight_decay, scale
            step(weights, self.state["m"], self.state["v"], gradient, *given, moved(self._decay_edges, weights))
            return
        for block in self._blocks:
            w, m, v = weights[block], self.state["m"][block], self.state["v"][block]
            g, spare = self._read(gradient, block, scale), self._spare[0][: len(w)]
            self._move(w, m, v, g, spare, rate, block)
        charge(13 * weights.size, 6 * weights.nbytes + gradient.nbytes)

    def _move(self, w: Array, m: Array, v: Array, g: Array, spare: Array, rate: float, block: slice) -> None:
        """A step of the weights of a block, with their m and v; `spare` is working space of their shape."""
        self._update_moments(m, v, g, spare)
        self._write_direction(m, v, rate, out=spare)
        keep = 1 - rate * self.weight_decay
        if keep != 1:
            for part in self._decayed(block):
                np.multiply(w[part], keep, out=w[part])
        np.subtract(w, spare, out=w)

    @cached_property
    def _decay_edges(self) -> Array:
        """The begin and end of each stretch that decays, alternating."""
        return np.array([end for part in self._decayed(slice(0, *self._shape)) for end in (part.start, part.stop)], int)
