"""Norm: layer normalization, with a gain and a bias for each feature, and RMSNorm, with a gain alone."""

from simdist.arrays import Array
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["LayerNorm", "RMSNorm"]


class LayerNorm(Layer):
    """Each row shifted to mean 0 and scaled to variance 1, times a gain, plus a bias."""

    def __init__(self, name: str, width: int) -> None:
        self.gain = Parameter(f"{name}.gain", (width,), mean=1.0)
        self.bias = Parameter(f"{name}.bias", (width,))
        self.parameters = (self.gain, self.bias)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, tuple[Array, Array]]:
        """The context is the normalized rows and their factors."""
        y, z, r = f.layer_norm(x, self.gain.data, self.bias.data)
        return y, (z, r)

    def backward_input(self, context: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
        """dy itself is pending."""
        return f.layer_norm_backward_input(*context, self.gain.data, dy), dy

    def backward_weight(self, context: tuple[Array, Array], pending: Array) -> None:
        """Add the column sums."""
        f.layer_norm_backward_weight(context[0], pending, self.gain.gradient, self.bias.gradient)


class RMSNorm(Layer):
    """Each row scaled to a mean square of 1, times a gain."""

    def __init__(self, name: str, width: int) -> None:
        self.gain = Parameter(f"{name}.gain", (width,), mean=1.0)
        self.parameters = (self.gain,)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, tuple[Array, Array]]:
        """The context is the scaled rows and their factors."""
        y, z, r = f.rms_norm(x, self.gain.data)
        return y, (z, r)

    def backward_input(self, context: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
        """dy itself is pending."""
        return f.rms_norm_backward_input(*context, self.gain.data, dy), dy

    def backward_weight(self, context: tuple[Array, Array], pending: Array) -> None:
        """Add the column sums."""
        f.rms_norm_backward_weight(context[0], pending, self.gain.gradient)
