"""LAMB: Adam's direction with a separate learning rate for every layer, for large batches."""

from collections.abc import Iterable

import numpy as np

from simdist.arrays import Array, charge
from simdist.optim.moments import Moments
from simdist.optim.norm import Combine, alone, norms
from simdist.optim.spans import Spans

__all__ = ["LAMB"]


class LAMB(Moments):
    """A layer's weights w move by the learning rate times their norm, in the direction of AdamW.

        u ← m̂ / (√v̂ + ε) + weight_decay · w
        w ← w - learning_rate · ‖w‖ / ‖u‖ · u

    The ratio is 1 if one of the norms is 0, and outside of the layers.

    Args:
        like, betas, epsilon, weight_decay, decay, start: as in `Moments`.
        layers, combine: as in `LARS`.

    Attributes:
        state: "m" and "v", zero at first. It also keeps u, of the weights' length, as working space.

    Cost per step and weight: 14 operations, 16 with weight decay, and 10 for the norms; m and v are read and written,
    u written and read, weights read twice and written, the gradient is read, and for the norms weights and u twice
    more.

    Source: You et al. 2020, arXiv 1904.00962, algorithm 2, with φ(x) = x.
    """

    def __init__(
        self,
        like: Array,
        layers: Iterable[slice],
        *,
        combine: Combine = alone,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-6,
        weight_decay: float = 0.01,
        decay: Iterable[slice] | None = None,
        start: int = 0,
    ) -> None:
        super().__init__(like, betas=betas, epsilon=epsilon, weight_decay=weight_decay, decay=decay, start=start)
        self._layers = Spans(layers).cut(start, start + len(like))
        self._combine = combine
        self._direction = np.empty_like(like)

    def _update(self, weights: Array, gradient: Array, rate: float, scale: float) -> None:
        for block in self._blocks:
            w, u = weights[block], self._direction[block]
            m, v = self.state["m"][block], self.state["v"][block]
            spare = self._spare[0][: len(w)]
            self._update_moments(m, v, self._read(gradient, block, scale), spare)
            self._write_direction(m, v, 1.0, out=u)
            self._penalize(u, w, block, spare)
        ratios = self._ratios(weights)
        for block in self._blocks:
            w, u = weights[block], self._direction[block]
            for part, i in self._layers.numbered(block):
                np.multiply(u[part], ratios[i], out=u[part])
            np.multiply(u, rate, out=u)
            np.subtract(w, u, out=w)
        charge((14 + 2 * (self.weight_decay > 0)) * weights.size, 9 * weights.nbytes + gradient.nbytes)

    def _ratios(self, weights: Array) -> list[float]:
        """‖w‖ / ‖u‖ of each layer."""
        found = norms([x[span] for span in self._layers for x in (weights, self._direction)], self._combine)
        return [w / u if w > 0 and u > 0 else 1.0 for w, u in zip(found[::2], found[1::2], strict=True)]
