"""Linear: linear maps with some of the columns, or some of the rows, on each rank.

    column parallel    y = x [ w0 | w1 ]             each rank gets some features of y from all of x
    row parallel       y = [ x0 | x1 ] [ w0 ]        each rank gets a partial sum of y from some features of x
                                       [ w1 ]

One after the other they need no message between them: the output of the first is the input of the second.

Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3.
"""

from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.collectives import all_gather
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.nn import Layer, Noise, Parameter
from simdist.nn import functional as f
from simdist.nn.layers.linear import as_matrix, axes
from simdist.parallel.tensor.part import cut
from simdist.parallel.tensor.region import Region

__all__ = ["ColumnParallelLinear", "RowParallelLinear"]


class ColumnParallelLinear(Layer):
    """y = x @ w + b with some columns of w and items of b on each rank, which computes those features of y.

    Args:
        name, in_features, out_features: of the whole. With out_features (k, f), for k maps side by side, each rank has
            the same columns of each map, and there is no b.
        region: of the ranks that share it; x is outside of it, y inside.
        std: of the first weights.
        bias: whether there is a b.
        gather_output: whether every rank gets all features of y; for one map only.

    Cost per rank, n bytes of x and m of y on t ranks: forward `region.enter`, backward `region.leave` of n bytes. In a
    `Sharded` region, backward gathers x again for the derivatives by w, so that only a run of it is kept: n(t-1)/t
    bytes more. Gathering y takes m(t-1)/t bytes, in forward only.

    Raises:
        ArgumentError: out_features cannot be divided evenly over the ranks, or several maps are to be gathered.
    """

    def __init__(
        self,
        name: str,
        in_features: int,
        out_features: int | tuple[int, int],
        region: Region,
        *,
        std: float,
        bias: bool = True,
        gather_output: bool = False,
    ) -> None:
        self.region = region
        self.gather_output = gather_output
        out = axes(out_features, bias)
        if gather_output and len(out) > 1:
            raise ArgumentError(f"out_features are {out_features}; gather_output is for one map")
        self.w = cut(f"{name}.w", (in_features, *out), len(out), region.comm, std)
        self.b = cut(f"{name}.b", out, 0, region.comm) if bias else None
        self.parameters = (self.w,) if self.b is None else (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        b = None if self.b is None else self.b.data
        y = f.linear(self.region.enter(x), as_matrix(self.w.data), b)
        return gathered(y, self.region) if self.gather_output else y, x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns dy @ w.T, summed over the ranks; this rank's features of dy are pending."""
        if self.gather_output:
            dy = own_features(dy, self.region.comm)
        return self.region.leave(f.linear_backward_input(dy, as_matrix(self.w.data))), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add x.T @ dy and the sum of dy."""
        db = None if self.b is None else self.b.gradient
        f.linear_backward_weight(self.region.enter(context), pending, as_matrix(self.w.gradient), db)


class RowParallelLinear(Layer):
    """y = x @ w + b with some rows of w on each rank, for those features of x; b is added once, to the sum.

    Args:
        name, in_features, out_features: of the whole.
        region: of the ranks that share it; x is inside of it, y outside.
        std: of the first weights.
        split_input: whether every rank is given all features of x.
        bias: whether there is a b.

    Cost per rank, n bytes of y and m of x on t ranks: forward `region.leave`, backward `region.enter` of n bytes.
    Where the input is split, backward gathers its derivatives: m(t-1)/t bytes.

    Raises:
        ArgumentError: in_features cannot be divided evenly over the ranks.
    """

    def __init__(
        self,
        name: str,
        in_features: int,
        out_features: int,
        region: Region,
        *,
        std: float,
        split_input: bool = False,
        bias: bool = True,
    ) -> None:
        self.region = region
        self.split_input = split_input
        self.w = cut(f"{name}.w", (in_features, out_features), 0, region.comm, std)
        self.b = Parameter(f"{name}.b", (out_features,)) if bias else None
        self.parameters = (self.w,) if self.b is None else (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is this rank's features of x."""
        if self.split_input:
            x = own_features(x, self.region.comm)
        y = self.region.leave(f.linear(x, self.w.data))
        return (y if self.b is None else f.add(y, self.b.data)), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Any]:
        """Returns dy @ w.T; dy of all tokens is pending."""
        dy = self.region.enter(dy)
        dx = f.linear_backward_input(dy, self.w.data)
        return gathered(dx, self.region) if self.split_input else dx, dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add x.T @ dy and the sum of dy over all tokens, which is the same on every rank."""
        f.linear_backward_weight(context, pending, self.w.gradient, None if self.b is None else self.b.gradient)


def own_features(x: Array, comm: Communicator) -> Array:
    """This rank's part of the last axis, contiguous."""
    width = x.shape[-1] // comm.size
    own: Array = x[..., comm.rank * width : (comm.rank + 1) * width].copy()
    return own


def gathered(y: Array, region: Region) -> Array:
    """All parts of the last axis."""
    t = region.comm.size
    if t == 1:
        return y
    parts = np.empty_like(y, shape=(t, y.size))
    all_gather(y, region.comm, region.algorithm, out=parts)
    *rows, width = y.shape
    return parts.reshape(t, -1, width).transpose(1, 0, 2).reshape(*rows, t * width)
