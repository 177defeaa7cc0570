"""Lookup: the vectors of entries and of positions."""

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.fused import fused
from simdist.arrays.working import widened
from simdist.nn.functional.matrix import add, add_sums

__all__ = ["embedding", "embedding_backward", "positions", "positions_backward", "within"]


def within(indices: Array, first: int, count: int) -> tuple[Array, Array]:
    """The indices relative to `first`, 0 for those not among `count` entries from there; and which of them are."""
    moved = indices.astype(np.intp) - first  # bytes that are compared with more than 255 crash some versions of NumPy
    inside = (moved >= 0) & (moved < count)
    return moved * inside, inside


def embedding(indices: Array, table: Array) -> Array:
    """The table's rows at these indices: (…,) integers and (entries, width) give (…, width)."""
    y = table[indices]
    charge(0, indices.nbytes + 2 * y.nbytes)
    return y


@fused("lookup", argument=1)
def embedding_backward(indices: Array, dy: Array, dtable: Array) -> None:
    """Add each row of dy to the row of dtable that it came from.

    Sorted by index, the rows of an entry are contiguous, and all runs are summed in one pass, always in the same
    order.
    """
    flat = indices.reshape(-1)
    order = np.argsort(flat, kind="stable")
    lengths = np.bincount(flat, minlength=len(dtable))
    entries = lengths.nonzero()[0]
    starts = (np.cumsum(lengths) - lengths)[entries]
    rows = widened(dy.reshape(-1, dtable.shape[1])[order])
    dtable[entries] += np.add.reduceat(rows, starts, axis=0)
    used = min(len(entries), len(flat))  # a phantom's `nonzero` returns all entries
    charge(dy.size, 3 * dy.nbytes + 3 * used * dtable.shape[1] * dtable.itemsize)


def positions(x: Array, table: Array) -> Array:
    """Add to each sample of x, shape (samples, tokens, width), in place, the table's first rows, and return x."""
    return add(x, table[: x.shape[1]])


def positions_backward(dy: Array, dtable: Array) -> None:
    """Add the sum of dy over the samples to the vectors of their positions."""
    add_sums(dy, 0, dtable[: dy.shape[1]])
