"""Blocks: a few rows at a time, so that each operation finds them in the cache, where the previous one left them."""

from typing import Any

from simdist.arrays.kind import kind_of

__all__ = ["BLOCK_BYTES", "blocks"]

BLOCK_BYTES = 1 << 18
"""Of one array at a time: with the few others of an operation it fits a core's second-level cache."""


def blocks(rows: int, row_bytes: int, like: Any, block_bytes: int = BLOCK_BYTES) -> list[slice]:
    """Cut `rows` rows of `row_bytes` bytes each into slices of about `block_bytes`, in order.

    Memory is then passed over once for a chain of operations, and not once for each of them. Only arrays in
    a processor's memory benefit; one slice is returned for any other kind.

    Args:
        like: an array of the kind to be cut.
    """
    if kind_of(like) != "numpy":
        return [slice(0, rows)]
    step = max(1, block_bytes // max(1, row_bytes))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
