"""Compressor: a sum over ranks with fewer bytes sent."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from simdist.arrays import Array
from simdist.collectives import all_gather, all_reduce, cost
from simdist.collectives.registry import choose
from simdist.comm import Communicator
from simdist.errors import ArrayError, wrong_return
from simdist.optim import largest

__all__ = ["Compressor", "Uncompressed"]


class Compressor(ABC):
    """Sums a gradient over ranks, approximately, with error feedback: each rank keeps the part that it did not send.

        gradient + residual  =  sent + residual for the next time

    So nothing is lost, only delayed: over any number of steps, the sums applied and the residuals of all ranks
    add up to all gradients (up to rounding). Reduce the plain gradient, without a loss scale or a learning rate:
    residuals are added to those of later steps.

    A gradient with an Inf or NaN makes the result NaN on all ranks, and is not added to its rank's residual; those
    of the other ranks keep their gradients, which were not applied. So it is with one that might take its rank's
    residual beyond the dtype's range.

    One of your own has `_reduce`, and counts what its collectives send:

        class Half(Compressor):
            name = "half"
            item_bytes = 2  # of its messages

            def __init__(self, like):
                super().__init__(like)
                self.state["residual"] = np.zeros_like(like)

            def _reduce(self, x, comm):
                self._add_to_residual(x)  # False for an Inf or NaN, of which `TopK` tells all ranks
                mine = self.state["residual"].astype(np.float16)
                self.state["residual"] -= mine
                every = np.empty_like(mine, shape=(comm.size, len(x)))
                self._all_gather(mine, every, comm)  # counts, as `_all_reduce` does; others need `_count`
                x[...] = every.sum(axis=0, dtype=x.dtype)

    Args:
        like: a flat vector, float32 or float64, of the length, dtype and kind of the array to reduce: a whole
            gradient or a bucket. Each slice of the gradient needs its own compressor.

    Attributes:
        name: in spans and errors; each class sets its own.
        state: name -> this rank's state between steps; different on each rank.
        sent_bytes: sent by this rank so far, exactly as on the record.
        plain_bytes: that the ring all-reduce would have sent.

    Raises:
        ArrayError: like is not flat, or has another dtype.
    """

    name: str

    def __init__(self, like: Array) -> None:
        if like.ndim != 1 or like.dtype.kind != "f" or like.itemsize not in (4, 8):
            raise ArrayError(
                f"a gradient of shape {like.shape} and dtype {like.dtype}; "
                "compression needs a flat vector of float32 or float64"
            )
        self.state: dict[str, Array] = {}
        self.sent_bytes = 0
        self.plain_bytes = 0
        self._shape: tuple[int, ...] = like.shape
        self._dtype = like.dtype
        self._none = np.empty_like(like, shape=(0,))

    @property
    def item_bytes(self) -> int:
        """Bytes of one item of a message; collectives cut arrays between items, and predictions of their bytes do."""
        return int(self._dtype.itemsize)

    @property
    def saved_share(self) -> float:
        """The share of the ring all-reduce's bytes that was not sent; 0 before the first."""
        return 1 - self.sent_bytes / self.plain_bytes if self.plain_bytes else 0.0

    def reduce(self, x: Array, comm: Communicator) -> None:
        """Replace x by its approximate sum over all ranks, the same bits on each. All must call.

        Raises:
            ArrayError: the shape or dtype of x is not that of `like`.
            ArgumentError: `_reduce` returns something, instead of leaving the sum in x.
        """
        if x.shape != self._shape or x.dtype != self._dtype:
            raise ArrayError(
                f"rank {comm.rank} gave a gradient of shape {x.shape} and dtype {x.dtype}; "
                f"this compressor needs {self._shape} and {self._dtype}"
            )
        self.plain_bytes += _sent("all_reduce", "ring", x, comm)
        with comm.span(f"compute sum by {self.name}", x.nbytes):  # except the collectives in it
            reduce: Callable[[Array, Communicator], object] = self._reduce
            returned = reduce(x, comm)
        if returned is not None:
            raise wrong_return(f"what {self.name} reduces by", returned, "None, and the sum in x")

    def put_off(self, rank: int) -> Array:
        """The part of the gradients that this rank has not applied yet: a new vector like the gradient.

        Args:
            rank: this rank's index in the communicator of `reduce`.
        """
        left = np.zeros_like(self._none, shape=self._shape)
        if "residual" in self.state:
            left[...] = self.state["residual"]
        return left

    def take_up(self, left: Array) -> None:
        """Set this rank's residual to a vector like the gradient.

        So the vectors of `put_off` can be redistributed over any number of ranks.
        """
        if "residual" in self.state:
            self.state["residual"][...] = left

    @abstractmethod
    def _reduce(self, x: Array, comm: Communicator) -> None:
        """Leave the sum in x, and the difference from the exact sum in the residuals; returns nothing."""

    def _add_to_residual(self, x: Array) -> bool:
        """Add x to the residual, if that stays finite; returns whether it does. An Inf would never leave it again."""
        residual = self.state["residual"]
        finite = largest(residual) + largest(x) <= float(np.finfo(x.dtype).max)
        if finite:
            np.add(residual, x, out=residual)
        return finite

    def _all_reduce(self, x: Array, comm: Communicator) -> None:
        """The exact sum of a vector, by messages, whose bytes are counted; never by shared memory."""
        name = choose("all_reduce", comm, x.nbytes, by_messages=True).own.name
        all_reduce(x, comm, algorithm=name)
        self._count("all_reduce", name, x, comm)

    def _all_gather(self, shard: Array, out: Array, comm: Communicator) -> None:
        """The shards of all ranks in `out`, round a ring, whose bytes are counted."""
        all_gather(shard, comm, "ring", out=out)
        self._count("all_gather", "ring", out, comm)

    def _count(self, operation: str, algorithm: str, x: Array, comm: Communicator) -> None:
        """Count the bytes that this rank sends in a collective whose whole array is x."""
        self.sent_bytes += _sent(operation, algorithm, x, comm)


class Uncompressed(Compressor):
    """The exact sum, with the same interface and the same counts, to compare with."""

    name = "all-reduce"

    def _reduce(self, x: Array, comm: Communicator) -> None:
        self._all_reduce(x, comm)


def _sent(operation: str, algorithm: str, x: Array, comm: Communicator) -> int:
    return cost(
        operation,
        algorithm,
        ranks=comm.size,
        num_bytes=x.nbytes,
        rank=comm.rank,
        itemsize=x.itemsize,
        ranks_per_node=comm.nodes.most,
    ).sent_bytes
