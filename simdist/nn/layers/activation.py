"""Activation: elementwise layers, gated or not, and dropout."""

from collections.abc import Callable

from simdist.arrays import Array
from simdist.errors import require_share
from simdist.nn import functional as f
from simdist.nn.layers.layer import Weightless
from simdist.nn.noise import Noise

__all__ = ["Dropout", "Gelu", "SwiGLU"]


class Gelu(Weightless):
    """The Gaussian error linear unit."""

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is the slope."""
        return f.gelu(x)

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, None]:
        """Returns dy times the slope."""
        return f.gelu_backward(context, dy), None


class SwiGLU(Weightless):
    """The gated linear unit with a SiLU gate: (…, 2 f) to (…, f), see `simdist.nn.functional.swiglu`."""

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is the slopes."""
        return f.swiglu(x)

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, None]:
        """Returns dy times each slope."""
        return f.swiglu_backward(context, dy), None


class Dropout(Weightless):
    """Drops a share of the elements, if there is noise, and scales up the others.

    Args:
        name: unique in its model; masks depend on it.
        share: at least 0 and below 1.
        tokens: tokens(count) -> the positions in the text of the `count` tokens of the input; if not given, from
            the noise's first token on.
    """

    def __init__(self, name: str, share: float, tokens: Callable[[int], Array] | None = None) -> None:
        require_share("dropout", share)
        self.name = name
        self.share = share
        self.tokens = tokens

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array | None]:
        """The context is the mask, or None where nothing is dropped."""
        if noise is None or not self.share:
            return x, None
        keep = noise.features(self.name, x, self.share, self.tokens and self.tokens(x.shape[1]))
        return f.dropout(x, keep, self.share), keep

    def backward_input(self, context: Array | None, dy: Array) -> tuple[Array, None]:
        """Drops the same elements of dy."""
        return (dy if context is None else f.dropout(dy, context, self.share)), None
