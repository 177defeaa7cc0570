"""Experts' linear map: y = x @ w + b with a w and a b for each expert."""

from simdist.arrays import Array
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter, Place

__all__ = ["ExpertsLinear"]


class ExpertsLinear(Layer):
    """A linear map of each expert on what is in its slots: (E, m, in_features) to (E, m, out_features).

    The weights of all experts are one parameter, of shape (E, in_features, out_features); so are the biases, end to
    end, since as a vector they do not decay.

    Args:
        experts: of the whole model.
        std: of the first weights.
        own: which experts are at hand; all, if not given.
    """

    def __init__(
        self, name: str, experts: int, in_features: int, out_features: int, std: float, own: slice | None = None
    ) -> None:
        here = own or slice(0, experts)
        count, run = here.stop - here.start, slice(here.start * out_features, here.stop * out_features)
        index = () if own is None else (here, slice(0, in_features), slice(0, out_features))
        place = Place((experts, in_features, out_features), index)
        self.w = Parameter(f"{name}.w", (count, in_features, out_features), std=std, place=place)
        place = Place((experts * out_features,), () if own is None else (run,))
        self.b = Parameter(f"{name}.b", (count * out_features,), place=place)
        self.parameters = (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        return f.experts_linear(x, self.w.data, self._rows(self.b.data)), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """dy itself is pending."""
        return f.experts_linear_backward_input(dy, self.w.data), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Each expert adds what its own slots found."""
        f.experts_linear_backward_weight(context, pending, self.w.gradient, self._rows(self.b.gradient))

    def _rows(self, b: Array) -> Array:
        """A row for each expert."""
        return b.reshape(len(self.w.data), -1)
