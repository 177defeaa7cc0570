"""Experts: their linear maps, cut into columns and rows, so that ranks share each expert."""

from functools import partial

from simdist.arrays import Array
from simdist.nn import Layer, Noise
from simdist.nn import functional as f
from simdist.nn.layers.experts_linear import as_matrices, biases, rows_of
from simdist.nn.layers.linear import axes
from simdist.parallel.tensor.linear import cut
from simdist.parallel.tensor.region import Region

__all__ = ["ColumnParallelExperts", "RowParallelExperts"]


class ColumnParallelExperts(Layer):
    """`ExpertsLinear` with some columns of each expert's w on each rank, which computes those features of y.

    Every rank has all biases, end to end in one vector. It uses those of its columns, and computes the gradient of
    these only.

    Args:
        name, experts, in_features, out_features, std, bias: of the whole, as of `ExpertsLinear`.
        own: the experts on this rank.
        region: of the ranks that share them; x is outside of it, y inside.

    Cost per rank: that of a `ColumnParallelLinear` for all slots of these experts, of in_features each.

    Raises:
        ArgumentError: out_features cannot be divided evenly over the ranks.
    """

    def __init__(
        self,
        name: str,
        experts: int,
        in_features: int,
        out_features: int | tuple[int, int],
        std: float,
        own: slice,
        region: Region,
        *,
        bias: bool = True,
    ) -> None:
        self.region = region
        out = axes(out_features, bias)
        self.w = cut(f"{name}.w", (experts, in_features, *out), len(out) + 1, region.comm, std, own)
        self.b = biases(name, experts, out[0], own) if bias else None
        self.parameters = (self.w,) if self.b is None else (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        w, b = as_matrices(self.w.data), None if self.b is None else self._own(self.b.data)
        return self.region.enter_through(x, w.shape[-1], partial(f.experts_linear, w=w, b=b))[1], x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns the sum of dy @ w.T over the ranks; dy itself is pending."""
        w = as_matrices(self.w.data)
        return self.region.leave_through(dy, w.shape[-2], partial(f.experts_linear_backward_input, w=w)), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add to each expert's gradients those of its slots."""
        dw, db = as_matrices(self.w.gradient), None if self.b is None else self._own(self.b.gradient)
        for x, dy in self.region.each_run(context, pending):
            f.experts_linear_backward_weight(x, dy, dw, db)

    def _own(self, b: Array) -> Array:
        """Each expert's biases of this rank's columns."""
        own: Array = rows_of(b, self.w)[:, self.w.place.index[-1]]
        return own


class RowParallelExperts(Layer):
    """`ExpertsLinear` with some rows of each expert's w on each rank, for those features of x; b is added once.

    Args:
        name, experts, in_features, out_features, std, own, bias: as of `ColumnParallelExperts`.
        region: of the ranks that share them; x is inside of it, y outside.

    Cost per rank: that of a `RowParallelLinear` for all slots of these experts, of out_features each.

    Raises:
        ArgumentError: in_features cannot be divided evenly over the ranks.
    """

    def __init__(
        self,
        name: str,
        experts: int,
        in_features: int,
        out_features: int,
        std: float,
        own: slice,
        region: Region,
        *,
        bias: bool = True,
    ) -> None:
        self.region = region
        self.w = cut(f"{name}.w", (experts, in_features, out_features), 1, region.comm, std, own)
        self.b = biases(name, experts, out_features, own) if bias else None
        self.parameters = (self.w,) if self.b is None else (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        y = self.region.leave_through(x, self.w.shape[-1], partial(f.experts_linear, w=self.w.data))
        return (y if self.b is None else f.add(y, rows_of(self.b.data, self.w)[:, None])), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns dy @ w.T; dy of all slots is pending."""
        w = self.w.data
        dy, dx = self.region.enter_through(dy, w.shape[-2], partial(f.experts_linear_backward_input, w=w))
        return dx, dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add to each expert's gradients those of its slots; that of b is the same on every rank."""
        db = None if self.b is None else rows_of(self.b.gradient, self.w)
        f.experts_linear_backward_weight(context, pending, self.w.gradient, db)
