"""Experts: their linear maps cut into columns and rows, so that ranks share each expert."""

from simdist.arrays import Array, partition
from simdist.nn import Layer, Noise, Parameter, Place
from simdist.nn import functional as f
from simdist.parallel.even import check_even
from simdist.parallel.tensor.region import Region

__all__ = ["ColumnParallelExperts", "RowParallelExperts"]


class ColumnParallelExperts(Layer):
    """As `ExpertsLinear`, each rank with some columns of each expert's w, and those features of y.

    Every rank has all of the biases, which are one vector end to end, and uses those of its columns: of their
    gradient it finds these alone.

    Args:
        name, experts, in_features, out_features, std: of the whole.
        own: which experts are at hand.
        region: whose ranks share them; x is outside of it, y inside.

    Cost per rank: forward `region.enter`, backward `region.leave` of all slots at hand, of in_features each; as of a
    `ColumnParallelLinear`.

    Raises:
        ArgumentError: out_features do not go evenly on the ranks.
    """

    def __init__(
        self, name: str, experts: int, in_features: int, out_features: int, std: float, own: slice, region: Region
    ) -> None:
        self.region = region
        self.w = _weights(name, (experts, in_features, out_features), 2, std, own, region)
        self.b = _biases(name, experts, out_features, own)
        self.parameters = (self.w, self.b)
        self._columns = self.w.place.index[2]

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        b = _rows(self.b.data, self.w)[:, self._columns]
        return f.experts_linear(self.region.enter(x), self.w.data, b), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns the sum of dy @ w.T over the ranks; dy itself is pending."""
        return self.region.leave(f.experts_linear_backward_input(dy, self.w.data)), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Each expert adds what its own slots found."""
        db = _rows(self.b.gradient, self.w)[:, self._columns]
        f.experts_linear_backward_weight(self.region.enter(context), pending, self.w.gradient, db)


class RowParallelExperts(Layer):
    """As `ExpertsLinear`, each rank with some rows of each expert's w, and those features of x; b is added once.

    Args:
        name, experts, in_features, out_features, std: of the whole.
        own: which experts are at hand.
        region: whose ranks share them; x is inside of it, y outside.

    Cost per rank: forward `region.leave`, backward `region.enter` of all slots at hand, of out_features each.

    Raises:
        ArgumentError: in_features do not go evenly on the ranks.
    """

    def __init__(
        self, name: str, experts: int, in_features: int, out_features: int, std: float, own: slice, region: Region
    ) -> None:
        self.region = region
        self.w = _weights(name, (experts, in_features, out_features), 1, std, own, region)
        self.b = _biases(name, experts, out_features, own)
        self.parameters = (self.w, self.b)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        y = self.region.leave(f.product(x, self.w.data))
        return f.add(y, _rows(self.b.data, self.w)[:, None]), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns dy @ w.T; dy of all slots is pending."""
        dy = self.region.enter(dy)
        return f.experts_linear_backward_input(dy, self.w.data), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Each expert adds what its own slots found, which of b is the same on every rank."""
        f.experts_linear_backward_weight(context, pending, self.w.gradient, _rows(self.b.gradient, self.w))


def _weights(name: str, shape: tuple[int, ...], axis: int, std: float, own: slice, region: Region) -> Parameter:
    """This rank's box of w: its experts, and along one axis its share."""
    comm, kind = region.comm, ("", "rows", "columns")[axis]
    check_even(f"{kind} of {name}.w", shape[axis], "tp", comm.size)
    index = [own, slice(0, shape[1]), slice(0, shape[2])]
    index[axis] = partition(shape[axis], comm.size)[comm.rank]
    part = tuple(s.stop - s.start for s in index)
    return Parameter(f"{name}.w", part, std=std, place=Place(shape, tuple(index)))


def _biases(name: str, experts: int, features: int, own: slice) -> Parameter:
    """All features of the experts at hand, end to end."""
    run = slice(own.start * features, own.stop * features)
    return Parameter(f"{name}.b", (run.stop - run.start,), place=Place((experts * features,), (run,)))


def _rows(b: Array, w: Parameter) -> Array:
    """A row for each expert."""
    return b.reshape(w.shape[0], -1)
