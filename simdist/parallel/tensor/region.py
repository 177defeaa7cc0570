"""Region: where ranks work on different parts of a layer, and the ways in and out.

    h    width     t    ranks     s    tokens     b    sequences

    x ---- f ----> | heads or hidden features, on each rank some | ---- g ----> y
                     partial sums of y

                    forward f          forward g          backward of f      backward of g
    Replicated      nothing            all-reduce         all-reduce         nothing
    Sharded         all-gather         reduce-scatter     reduce-scatter     all-gather

What f does forward, g does backward, and the other way round: they are conjugate. (f and g are Shoeybi et al.'s names,
of Replicated; Korthikanti et al. write f and f̄ for that pair, and g and ḡ for Sharded's.) So a region has
just two operations, `enter` and `leave`, and backward goes through them in the opposite order.

Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3 (f and g); Korthikanti et al. 2022, arXiv 2205.05198,
section 4.2.2 (along the sequence).
"""

from abc import ABC, abstractmethod

import numpy as np

from simdist.arrays import Array
from simdist.collectives import all_gather, all_reduce, reduce_scatter
from simdist.comm import Communicator
from simdist.errors import ArrayError

__all__ = ["Region", "Replicated", "Sharded"]


class Region(ABC):
    """Ranks that share a layer, and how activations enter and leave it.

    Args:
        comm: the ranks.
        algorithm: of the collectives: "ring", or "auto".
    """

    def __init__(self, comm: Communicator, algorithm: str = "auto") -> None:
        self.comm = comm
        self.algorithm = algorithm

    @abstractmethod
    def enter(self, x: Array) -> Array:
        """From outside to the whole, the same on all ranks; x is not changed, and may be what is returned."""

    @abstractmethod
    def leave(self, y: Array) -> Array:
        """From each rank's summand of the whole, the caller's own, to the sum outside; y is used up."""

    @abstractmethod
    def tokens(self, count: int) -> Array:
        """Which tokens of those inside the `count` outside are, on this rank: their numbers."""


class Replicated(Region):
    """Outside of the region every rank has all activations, and does the same with them.

    Cost per rank of n bytes inside: to enter nothing; to leave an all-reduce, 2n(t-1)/t bytes.
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

    Norms and dropout, which work on each token separately, are computed once instead of on every rank, and
    their activations are kept once.

    Cost per rank of n bytes inside: n(t-1)/t bytes each way, so both together those of one all-reduce.
    """

    def enter(self, x: Array) -> Array:
        """(b, s/t, h) to (b, s, h)."""
        t = self.comm.size
        if t == 1:
            return x
        b, s, h = x.shape
        runs = np.empty_like(x, shape=(t, b, s, h))
        all_gather(x, self.comm, self.algorithm, out=runs)
        return runs.transpose(1, 0, 2, 3).reshape(b, t * s, h)

    def leave(self, y: Array) -> Array:
        """(b, s, h) to (b, s/t, h).

        Raises:
            ArrayError: the tokens do not go evenly on the ranks.
        """
        t = self.comm.size
        if t == 1:
            return y
        b, s, h = y.shape
        if s % t:
            raise ArrayError(f"texts of {s} tokens on {t} ranks; needs a multiple of {t} tokens")
        runs = np.empty_like(y, shape=(t, b, s // t, h))
        runs[...] = y.reshape(b, t, s // t, h).transpose(1, 0, 2, 3)
        own = reduce_scatter(runs, self.comm, algorithm=self.algorithm)
        return own.copy().reshape(b, s // t, h)  # a copy, so that the rest does not live as long as it

    def tokens(self, count: int) -> Array:
        """A run of as many."""
        return np.arange(count) + self.comm.rank * count
