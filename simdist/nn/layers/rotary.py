"""Rotary: queries and keys rotated by the positions of their tokens."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simdist.arrays import Array
from simdist.nn import functional as f
from simdist.nn.layers.layer import Weightless
from simdist.nn.noise import Noise

__all__ = ["Rotary"]


@dataclass(eq=False)
class Rotary(Weightless):
    """On queries, keys and values as `Attention` takes them, before it: see `simdist.nn.functional.rotary`.

    Args:
        heads: the number of heads in its input.
        tokens: tokens(count) -> the positions in the text of the `count` tokens of the input; if not given, from 0 on.
        groups: of heads that share keys and values; if not given, one per head.
        base: of the angles.
        value_width, rotary_features: as for `simdist.nn.functional.rotary`.
    """

    heads: int
    tokens: Callable[[int], Array] = np.arange
    groups: int | None = None
    base: float = f.ROPE_BASE
    value_width: int | None = None
    rotary_features: int | None = None

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, None]:
        """There is no context."""
        return self._rotated(x), None

    def backward_input(self, context: None, dy: Array) -> tuple[Array, None]:
        """Rotates dy back."""
        return self._rotated(dy, back=True), None

    def _rotated(self, x: Array, back: bool = False) -> Array:
        places = self.tokens(x.shape[1])
        return f.rotary(x, self.heads, places, back, self.groups, self.base, self.value_width, self.rotary_features)
