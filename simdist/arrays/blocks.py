"""Blocks: a few rows at a time, so that an operation finds in the cache what the previous one left there."""

from typing import Any

from simdist.arrays.kind import kind_of

__all__ = ["BLOCK_BYTES", "blocks"]

BLOCK_BYTES = 1 << 18
"""Of one array: blocks of all arrays of an operation fit into a core's second-level cache together."""


def blocks(rows: int, row_bytes: int, like: Any, block_bytes: int = BLOCK_BYTES) -> list[slice]:
    """Cut `rows` rows of `row_bytes` bytes each into slices of about `block_bytes`, in order.

    A chain of operations then passes over memory once, and not once each. Only NumPy's arrays benefit; for any
    other kind there is one slice.

    Args:
        like: an array of the kind to be cut.
    """
    if kind_of(like) != "numpy":
        return [slice(0, rows)]
    step = max(1, block_bytes // max(1, row_bytes))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
