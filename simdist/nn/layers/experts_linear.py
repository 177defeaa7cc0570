"""Experts' linear map: y = x @ w + b with a w and a b for each expert."""

from simdist.arrays import Array
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer
from simdist.nn.layers.linear import axes
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter, Place

__all__ = ["ExpertsLinear", "as_matrices", "biases", "rows_of"]


class ExpertsLinear(Layer):
    """A linear map of each expert on its slots: (E, m, in_features) to (E, m, out_features).

    The weights of all experts are one parameter, of shape (E, in_features, out_features). The biases are one vector,
    since weight decay leaves out vectors.

    Args:
        experts: of the whole model.
        out_features: a number; or two, (k, f), for k maps of each expert side by side, as in `Linear`.
        std: of the initial weights.
        own: which experts this rank has; all, if not given.
        bias: whether there is a b.
    """

    def __init__(
        self,
        name: str,
        experts: int,
        in_features: int,
        out_features: int | tuple[int, int],
        std: float,
        own: slice | None = None,
        *,
        bias: bool = True,
    ) -> None:
        here, shape = own or slice(0, experts), (in_features, *axes(out_features, bias))
        index = () if own is None else (here, *(slice(0, n) for n in shape))
        place = Place((experts, *shape), index)
        self.w = Parameter(f"{name}.w", (here.stop - here.start, *shape), std=std, place=place)
        self.b = biases(name, experts, shape[1], own) if bias else None
        self.parameters = (self.w,) if self.b is None else (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        b = None if self.b is None else rows_of(self.b.data, self.w)
        return f.experts_linear(x, as_matrices(self.w.data), b), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """dy itself is pending."""
        return f.experts_linear_backward_input(dy, as_matrices(self.w.data)), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Each expert adds the derivatives of its own slots."""
        db = None if self.b is None else rows_of(self.b.gradient, self.w)
        f.experts_linear_backward_weight(context, pending, as_matrices(self.w.gradient), db)


def as_matrices(w: Array) -> Array:
    """A view of a weight, shape (E, in_features, …), with all output features of an expert as columns."""
    return w.reshape(*w.shape[:2], -1)


def biases(name: str, experts: int, features: int, own: slice | None = None) -> Parameter:
    """The biases of this rank's own experts, or of all if not given, end to end."""
    here = own or slice(0, experts)
    run = slice(here.start * features, here.stop * features)
    place = Place((experts * features,), () if own is None else (run,))
    return Parameter(f"{name}.b", (run.stop - run.start,), place=place)


def rows_of(b: Array, w: Parameter) -> Array:
    """A row of biases for each expert of w."""
    return b.reshape(w.shape[0], -1)
