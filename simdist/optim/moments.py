"""Moments: the running means of a gradient and of its square, used by the Adam family."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from simdist.arrays import Array
from simdist.errors import ArgumentError, require_more, require_share
from simdist.optim.optimizer import Optimizer

__all__ = ["Moments"]


class Moments(Optimizer):
    """m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²,  and the direction m̂ / (√v̂ + ε).

    The hats correct the bias of m and v towards their initial zeros: m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ) after
    step t. The corrections are scalars, so they are applied where they cost nothing:

        m̂ / (√v̂ + ε)  =  correction · m / (√v + ε √(1 - β₂ᵗ)),   correction = √(1 - β₂ᵗ) / (1 - β₁ᵗ)

    Args:
        like, decay, start, weight_decay: as in `Optimizer`.
        betas: β₁ and β₂, at least 0 and below 1.
        epsilon: above 0.

    Attributes:
        state: "m" and "v", zero at first.

    Raises:
        ArgumentError: an argument is outside its limits.

    Source: Kingma and Ba 2015, arXiv 1412.6980, algorithm 1 and the end of section 2.
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
        super().__init__(like, decay, start, weight_decay)
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise ArgumentError(f"betas is {betas!r:.60}; needs two numbers, such as (0.9, 0.999)")
        for i, beta in enumerate(betas):
            require_share(f"betas[{i}]", beta)
        require_more("epsilon", epsilon, 0)
        self.betas = betas
        self.epsilon = epsilon
        self.state = self._zeros(like)

    def _zeros(self, like: Array) -> dict[str, Array]:
        """The initial state."""
        return {"m": np.zeros_like(like), "v": np.zeros_like(like)}

    # -- for the rules --------------------------------------------------------------------------------

    def _update_moments(self, m: Array, v: Array, g: Array, spare: Array) -> None:
        """Update m and v by g, in place: 7 operations per item; `spare` is working space of their shape."""
        beta1, beta2 = self.betas
        np.subtract(g, m, out=spare)
        np.multiply(spare, 1 - beta1, out=spare)
        np.add(m, spare, out=m)
        np.multiply(g, g, out=spare)
        np.multiply(spare, 1 - beta2, out=spare)
        np.multiply(v, beta2, out=v)
        np.add(v, spare, out=v)

    def _write_direction(self, m: Array, v: Array, factor: float, out: Array) -> None:
        """Write factor · m̂ / (√v̂ + ε) to `out`: 4 operations per item."""
        beta1, beta2 = self.betas
        t = self.num_steps
        root = math.sqrt(1 - beta2**t)
        np.sqrt(v, out=out)
        np.add(out, self.epsilon * root, out=out)
        np.divide(m, out, out=out)
        np.multiply(out, factor * root / (1 - beta1**t), out=out)
