"""LARS: a separate learning rate for every layer, for large batches."""

from collections.abc import Iterable

import numpy as np

from simdist.arrays import Array, charge
from simdist.errors import require_more, require_share
from simdist.optim.norm import Combine, alone, norms
from simdist.optim.optimizer import Optimizer
from simdist.optim.spans import Spans

__all__ = ["LARS"]


class LARS(Optimizer):
    """A layer's weights w move by a fixed share of their norm, however large its gradient g is.

        λ ← trust · ‖w‖ / (‖g‖ + weight_decay · ‖w‖)
        v ← momentum · v + learning_rate · λ · (g + weight_decay · w)
        w ← w - v

    λ is 1 if ‖w‖ or the denominator is 0, and outside of the layers.

    Args:
        like, start: as in `Optimizer`.
        layers: the slices of the whole vector with a λ each, such as `Parameters.spans.values()`; a shard also
            takes all of them.
        combine: reduces the shards' parts of a norm, as in `norms`. It is called at every step on all ranks that hold
            a shard; the norms, and so the weights, are the same bits as without shards.
        momentum: at least 0 and below 1.
        trust: above 0.
        weight_decay: at least 0; an L2 penalty.
        decay: the slices of whole layers that are penalized; everything, also outside of the layers, if None.

    Attributes:
        state: "velocity", v, zero at first.

    Raises:
        ArgumentError: an argument is outside its limits.

    Cost per step and weight: 5 operations, 7 with weight decay, and 10 for the norms; weights and velocity are read
    and written, the gradient is read, and for the norms weights and gradient twice more.

    Source: You, Gitman, Ginsburg 2017, arXiv 1708.03888, algorithm 1.
    """

    def __init__(
        self,
        like: Array,
        layers: Iterable[slice],
        *,
        combine: Combine = alone,
        momentum: float = 0.9,
        trust: float = 0.001,
        weight_decay: float = 0.0,
        decay: Iterable[slice] | None = None,
        start: int = 0,
    ) -> None:
        require_share("momentum", momentum)
        require_more("trust", trust, 0)
        whole, decayed = Spans(layers), None if decay is None else Spans(decay)
        super().__init__(like, decayed, start, weight_decay)
        self.momentum = momentum
        self.trust = trust
        self.state = {"velocity": np.zeros_like(like)}
        self._layers = whole.cut(start, start + len(like))
        self._combine = combine
        # For each layer as a whole: a shard that holds none of it must still find the same λ as the others.
        self._penalties = [0.0 if decayed is not None and not decayed.within(span) else weight_decay for span in whole]

    def _update(self, weights: Array, gradient: Array, rate: float, scale: float) -> None:
        ratios = self._ratios(weights, gradient, scale)
        for block in self._blocks:
            w, v = weights[block], self.state["velocity"][block]
            g, change = self._read(gradient, block, scale), self._spare[0][: len(w)]
            np.copyto(change, g)
            self._penalize(change, w, block, self._spare[1][: len(w)])
            for part, i in self._layers.numbered(block):
                np.multiply(change[part], ratios[i], out=change[part])
            np.multiply(change, rate, out=change)
            np.multiply(v, self.momentum, out=v)
            np.add(v, change, out=v)
            np.subtract(w, v, out=w)
        charge((5 + 2 * (self.weight_decay > 0)) * weights.size, 4 * weights.nbytes + gradient.nbytes)

    def _ratios(self, weights: Array, gradient: Array, scale: float) -> list[float]:
        """λ of each layer."""
        found = norms([x[span] for span in self._layers for x in (weights, gradient)], self._combine)
        ratios = []
        for w, g, penalty in zip(found[::2], found[1::2], self._penalties, strict=True):
            below = g * abs(scale) + penalty * w
            ratios.append(self.trust * w / below if w > 0 and below > 0 else 1.0)
        return ratios
