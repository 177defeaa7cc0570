"""Compressor: a sum over ranks with fewer bytes sent."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from simdist.arrays import Array
from simdist.collectives import all_reduce, cost
from simdist.collectives.registry import choose
from simdist.comm import Communicator
from simdist.errors import ArgumentError, ArrayError
from simdist.optim import largest

__all__ = ["Compressor"]


class Compressor(ABC):
    """Sums a gradient over ranks, approximately, with error feedback: it keeps what it left out.

        gradient + residual  =  sent + residual for the next time

    So nothing is lost, only delayed: over any number of steps, the sums applied and the residuals of all ranks
    add up to all gradients (up to rounding). The residual is of the gradient alone: divide by a loss scale
    first, and keep the learning rate out.

    A gradient with an Inf or NaN makes the result NaN on all ranks, and does not enter the residual of its
    own rank; those of the others keep what was not applied.

    Args:
        like: a flat vector of the length and dtype, float32 or float64, of what is to be reduced: a whole
            gradient or a bucket. One compressor serves one slice of the gradient.

    Attributes:
        state: name -> this rank's state between steps; differs from rank to rank.
        sent_bytes: what this rank has sent so far, exactly as on the record.
        plain_bytes: what it would have sent by the ring all-reduce.

    Raises:
        ArrayError: like is not as said.
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
        self._none = np.empty_like(like, shape=0)

    @property
    def item_bytes(self) -> int:
        """Of an item of what travels: collectives cut between whole ones."""
        return int(self._dtype.itemsize)

    @property
    def saved_share(self) -> float:
        """The part of the bytes of the ring all-reduce that was not sent; 0 before the first."""
        return 1 - self.sent_bytes / self.plain_bytes if self.plain_bytes else 0.0

    def reduce(self, x: Array, comm: Communicator) -> None:
        """Replace x, on every rank, by about its sum over all ranks; the same bits everywhere. All must call.

        Raises:
            ArrayError: x has not the shape and dtype of `like`.
            ArgumentError: the compressor returns something, and does not leave it in x.
        """
        if x.shape != self._shape or x.dtype != self._dtype:
            raise ArrayError(
                f"rank {comm.rank} gave a gradient of shape {x.shape} and dtype {x.dtype}; "
                f"this compressor needs {self._shape} and {self._dtype}"
            )
        self.plain_bytes += _sent("all_reduce", "ring", x, comm)
        with comm.span(f"compute sum by {self.name}", x.nbytes):  # but for the collectives in it
            reduce: Callable[[Array, Communicator], object] = self._reduce
            returned = reduce(x, comm)
        if returned is not None:
            raise ArgumentError(
                f"what {self.name} reduces by returns a {type(returned).__name__}; needs None, and the sum in x"
            )

    def put_off(self, rank: int) -> Array:
        """What this rank, of this number, has left out so far: a new vector like the gradient.

        Over all ranks they add up to what has not been applied yet.
        """
        left = np.zeros_like(self._none, shape=self._shape)
        if "residual" in self.state:
            left[...] = self.state["residual"]
        return left

    def take_up(self, left: Array) -> None:
        """Set this rank's residual to this vector, which is like the gradient.

        So what `put_off` returned can be redistributed over any number of ranks.
        """
        if "residual" in self.state:
            self.state["residual"][...] = left

    @abstractmethod
    def _reduce(self, x: Array, comm: Communicator) -> None:
        """Leave the sum in x, and in the residual what it lacks; returns nothing."""

    def _take(self, x: Array) -> bool:
        """Add x to the residual, if it is finite; returns whether it is."""
        finite = math.isfinite(largest(x))
        if finite:
            np.add(self.state["residual"], x, out=self.state["residual"])
        return finite

    def _all_reduce(self, x: Array, comm: Communicator) -> None:
        """The exact sum of a vector, by messages, which are what compression is to make shorter; counted."""
        name = choose("all_reduce", comm, x.nbytes, by_messages=True).own.name
        all_reduce(x, comm, algorithm=name)
        self._count("all_reduce", name, x, comm)

    def _count(self, operation: str, algorithm: str, x: Array, comm: Communicator) -> None:
        """Add what this rank sends in a collective whose whole array is x."""
        self.sent_bytes += _sent(operation, algorithm, x, comm)


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
