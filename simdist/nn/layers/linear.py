"""Linear: y = x @ w + b."""

import math

from simdist.arrays import Array
from simdist.errors import ArgumentError, require_whole
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["Linear", "TiedLinear", "as_matrix", "axes"]


class Linear(Layer):
    """y = x @ w + b, with biases that start at zero.

    Args:
        out_features: a number; or two, (k, f), for k maps to f features each, side by side in y, without a bias.
        std: the standard deviation of the initial weights. With the default, 1 / √in_features, the outputs vary
            about as much as the inputs.
        bias: whether there is a b.
    """

    def __init__(
        self,
        name: str,
        in_features: int,
        out_features: int | tuple[int, int],
        *,
        std: float | None = None,
        bias: bool = True,
    ) -> None:
        if std is None:
            require_whole("in_features", in_features, 1)
            std = 1 / math.sqrt(in_features)
        out = axes(out_features, bias)
        self.w = Parameter(f"{name}.w", (in_features, *out), std=std)
        self.b = Parameter(f"{name}.b", out[:1]) if bias else None
        self.parameters = (self.w,) if self.b is None else (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        return f.linear(x, as_matrix(self.w.data), None if self.b is None else self.b.data), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns dy @ w.T; dy itself is pending."""
        return f.linear_backward_input(dy, as_matrix(self.w.data)), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add x.T @ dy and the sum of dy."""
        db = None if self.b is None else self.b.gradient
        f.linear_backward_weight(context, pending, as_matrix(self.w.gradient), db)


class TiedLinear(Layer):
    """y = x @ table.T: the logits of a model that reads and writes with one table.

    Args:
        table: shape (out_features, in_features), shared with the embedding.

    Source: Press and Wolf 2017, arXiv 1608.05859.
    """

    name = "logits"

    def __init__(self, table: Parameter) -> None:
        self.table = table
        self.parameters = (table,)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        return f.linear(x, self.table.data.T), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns dy @ table; dy itself is pending."""
        return f.linear_backward_input(dy, self.table.data.T), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add dy.T @ x."""
        f.linear_backward_weight(pending, context, self.table.gradient)


def axes(out_features: int | tuple[int, int], bias: bool) -> tuple[int, ...]:
    """The axes after the first of a weight with these output features.

    Raises:
        ArgumentError: there are two axes and a bias, which would not be a vector.
    """
    if not isinstance(out_features, tuple):
        return (out_features,)
    if bias:
        raise ArgumentError(f"out_features is {out_features} and there is a bias; maps side by side have none")
    return out_features


def as_matrix(w: Array) -> Array:
    """A view of a weight, shape (in_features, …), as a matrix with all output features as columns."""
    return w.reshape(w.shape[0], -1)
