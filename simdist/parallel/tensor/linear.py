"""Linear: linear maps with some of the columns, or some of the rows, on each rank.

    column parallel    y = x [ w0 | w1 ]             each rank gets some features of y from all of x
    row parallel       y = [ x0 | x1 ] [ w0 ]        each rank gets a partial sum of y from some features of x
                                       [ w1 ]

One after the other they need no message between them: the output of the first is the input of the second.

Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3.
"""

from functools import partial

from simdist.arrays import Array, partition
from simdist.comm import Communicator
from simdist.nn import Layer, Noise, Parameter, Place
from simdist.nn import functional as f
from simdist.nn.layers.linear import as_matrix, axes
from simdist.parallel.even import check_even
from simdist.parallel.tensor.region import Region

__all__ = ["ColumnParallelLinear", "RowParallelLinear", "cut"]

_AXES = ("rows", "columns")


class ColumnParallelLinear(Layer):
    """y = x @ w + b with some columns of w and items of b on each rank, which computes those features of y.

    Args:
        name, in_features, out_features: of the whole. With out_features (k, f), for k maps side by side, each rank has
            the same columns of each map, and there is no b.
        region: of the ranks that share it; x is outside of it, y inside.
        std: of the first weights.
        bias: whether there is a b.

    Cost per rank, n bytes of x on t ranks: forward `region.enter`, backward `region.leave` of n bytes. In a
    `Sharded` region, backward gathers x again for the derivatives by w, so that only a run of it is kept: n(t-1)/t
    bytes more.

    Raises:
        ArgumentError: out_features cannot be divided evenly over the ranks.
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
    ) -> None:
        self.region = region
        out = axes(out_features, bias)
        self.w = cut(f"{name}.w", (in_features, *out), len(out), region.comm, std)
        self.b = cut(f"{name}.b", out, 0, region.comm) if bias else None
        self.parameters = (self.w,) if self.b is None else (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        w, b = as_matrix(self.w.data), None if self.b is None else self.b.data
        return self.region.enter_through(x, w.shape[1], partial(f.linear, w=w, b=b))[1], x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns dy @ w.T, summed over the ranks; dy itself is pending."""
        w = as_matrix(self.w.data)
        return self.region.leave_through(dy, w.shape[0], partial(f.linear_backward_input, w=w)), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add x.T @ dy and the sum of dy."""
        dw, db = as_matrix(self.w.gradient), None if self.b is None else self.b.gradient
        for x, dy in self.region.each_run(context, pending):
            f.linear_backward_weight(x, dy, dw, db)


class RowParallelLinear(Layer):
    """y = x @ w + b with some rows of w on each rank, for those features of x; b is added once, to the sum.

    Args:
        name, in_features, out_features, std, bias: as of `ColumnParallelLinear`.
        region: of the ranks that share it; x is inside of it, y outside.

    Cost per rank, n bytes of y: forward `region.leave`, backward `region.enter` of n bytes.

    Raises:
        ArgumentError: in_features cannot be divided evenly over the ranks.
    """

    def __init__(
        self, name: str, in_features: int, out_features: int, region: Region, *, std: float, bias: bool = True
    ) -> None:
        self.region = region
        self.w = cut(f"{name}.w", (in_features, out_features), 0, region.comm, std)
        self.b = Parameter(f"{name}.b", (out_features,)) if bias else None
        self.parameters = (self.w,) if self.b is None else (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        y = self.region.leave_through(x, self.w.shape[1], partial(f.linear, w=self.w.data))
        return (y if self.b is None else f.add(y, self.b.data)), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns dy @ w.T; dy of all tokens is pending."""
        dy, dx = self.region.enter_through(dy, self.w.shape[0], partial(f.linear_backward_input, w=self.w.data))
        return dx, dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add x.T @ dy and the sum of dy over all tokens, which is the same on every rank."""
        f.linear_backward_weight(context, pending, self.w.gradient, None if self.b is None else self.b.gradient)


def cut(
    name: str, shape: tuple[int, ...], axis: int, comm: Communicator, std: float = 0.0, own: slice | None = None
) -> Parameter:
    """This rank's part of a parameter that is cut along an axis.

        comm of 3, axis 1     | 0 0 1 1 2 2 |         axis 0     | 0 0 0 |
                              | 0 0 1 1 2 2 |                    | 1 1 1 |
                                                                 | 2 2 2 |

    Args:
        shape: of the whole.
        std: as of `Parameter`.
        own: of the first axis only these, such as this rank's experts; all if not given.

    Raises:
        ArgumentError: the axis cannot be divided evenly over the ranks.
    """
    check_even(f"{_AXES[axis - len(shape)]} of {name}", shape[axis], "tp", comm.size)
    index = [slice(0, n) for n in shape]
    if own is not None:
        index[0] = own
    index[axis] = partition(shape[axis], comm.size)[comm.rank]
    return Parameter(name, tuple(s.stop - s.start for s in index), std=std, place=Place(shape, tuple(index)))
