"""Region: where ranks compute different parts of a layer, and how activations enter and leave it.

    h    width     t    ranks     s    tokens     b    sequences

    x ---- f ----> | some heads or hidden features on each rank  | ---- g ----> y
                     partial sums of y

                    forward f          forward g          backward of f      backward of g
    Replicated      nothing            all-reduce         all-reduce         nothing
    Sharded         all-gather         reduce-scatter     reduce-scatter     all-gather

f in forward is g in backward, and the other way round: they are conjugate. (Shoeybi et al. name Replicated's pair f and
g; Korthikanti et al. name it f and f̄, and Sharded's g and ḡ.) So a region needs only two operations, `enter` and
`leave`, which backward uses in the opposite order.

Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3 (f and g); Korthikanti et al. 2022, arXiv 2205.05198,
section 4.2.2 (along the sequence).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from simdist.arrays import Array, charge
from simdist.collectives import all_gather, all_reduce, reduce_scatter
from simdist.comm import Communicator
from simdist.errors import ArrayError
from simdist.nn import Noise
from simdist.nn.layers import Weightless

__all__ = ["Entrance", "Region", "Replicated", "Sharded", "Through", "by_text"]

Through: TypeAlias = Callable[..., Array]
"""A function (x, out=None) of activations inside of a region: as of `Region.enter_through`."""


@dataclass(eq=False)
class Region(ABC):
    """Ranks that share a layer, and how activations enter and leave it.

    Args:
        comm: the ranks.
        algorithm: of the collectives: "ring", or "auto".
    """

    comm: Communicator
    algorithm: str = "auto"

    @abstractmethod
    def enter(self, x: Array) -> Array:
        """From activations outside to all of them, the same on all ranks; x is unchanged, and may be the result."""

    @abstractmethod
    def leave(self, y: Array) -> Array:
        """From each rank's partial sum, the caller's own array, to the sum outside; y is overwritten."""

    @abstractmethod
    def tokens(self, count: int) -> Array:
        """The indices, among the tokens inside, of this rank's `count` tokens outside."""

    def enter_through(self, x: Array, features: int, function: Through) -> tuple[Array, Array]:
        """`enter`, and what a function makes of it: (inside, function(inside)).

        Args:
            features: of a token in the function's result.
            function: treats each token by itself.
        """
        inside = self.enter(x)
        return inside, function(inside)

    def leave_through(self, x: Array, features: int, function: Through) -> Array:
        """`leave` what a function makes of x, which is inside; arguments as of `enter_through`."""
        return self.leave(function(x))

    def each_run(self, x: Array, y: Array) -> Iterator[tuple[Array, Array]]:
        """`enter`, in one or more runs of tokens, each with the same tokens of y, which is inside."""
        yield self.enter(x), y


class Replicated(Region):
    """Outside of the region every rank has all activations, and computes the same.

    Cost per rank of n bytes inside: none to enter; an all-reduce to leave, 2n(t-1)/t bytes.
    """

    def enter(self, x: Array) -> Array:
        """x itself."""
        return x

    def leave(self, y: Array) -> Array:
        """The sum of y over the ranks."""
        if self.comm.size > 1:
            all_reduce(y, self.comm, algorithm=self.algorithm)
        return y

    def tokens(self, count: int) -> Array:
        """All of them."""
        return np.arange(count)


class Sharded(Region):
    """Outside of the region each rank has a run of the tokens: Megatron's sequence parallelism.

        outside    rank 0  | # # . . . . . . |     enter: all-gather
                   rank 1  | . . # # . . . . |     leave: reduce-scatter

    Norms and dropout work on each token separately, so each token is computed on one rank instead of all, and its
    activations are kept once.

    Cost per rank of n bytes inside: n(t-1)/t bytes to enter and to leave, together those of one all-reduce.
    """

    def enter(self, x: Array) -> Array:
        """(b, s/t, h) to (b, s, h)."""
        t = self.comm.size
        if t == 1:
            return x
        b, s, h = x.shape
        runs = np.empty_like(x, shape=(t, b, s, h))
        all_gather(x, self.comm, self.algorithm, out=runs)
        return by_text(runs)

    def leave(self, y: Array) -> Array:
        """(b, s, h) to (b, s/t, h).

        Raises:
            ArrayError: the tokens cannot be divided evenly over the ranks.
        """
        if self.comm.size == 1:
            return y
        runs = self.runs(y)
        own = reduce_scatter(runs.copy(), self.comm, algorithm=self.algorithm)
        return own.copy().reshape(runs.shape[1:])  # a copy, which does not keep the other runs alive

    def runs(self, y: Array) -> Array:
        """(b, s, h) to (t, b, s/t, h): by the rank whose tokens they are outside.

        Raises:
            ArrayError: the tokens cannot be divided evenly over the ranks.
        """
        t, (b, s, h) = self.comm.size, y.shape
        if s % t:
            raise ArrayError(f"texts of {s} tokens on {t} ranks; needs a multiple of {t} tokens")
        return y.reshape(b, t, s // t, h).transpose(1, 0, 2, 3)

    def tokens(self, count: int) -> Array:
        """A run of `count` tokens."""
        return np.arange(count) + self.comm.rank * count


def by_text(runs: Array) -> Array:
    """(t, b, s, h), runs by rank, to (b, t s, h): whole texts."""
    t, b, s, h = runs.shape
    return runs.transpose(1, 0, 2, 3).reshape(b, t * s, h)


@dataclass(eq=False)
class Entrance(Weightless):
    """The entrance of a region as a layer, for activations that its ranks use as they are."""

    region: Region

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, None]:
        """`Region.enter`; there is no context."""
        return self.region.enter(x), None

    def backward_input(self, context: None, dy: Array) -> tuple[Array, None]:
        """`Region.leave`, which may overwrite dy: so of a copy."""
        charge(0, 2 * dy.nbytes)
        return self.region.leave(dy.copy()), None
