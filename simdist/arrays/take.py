"""Take: the entries of a table that arrays of indices name."""

from typing import Any

import numpy as np

from simdist.arrays.kind import moved

__all__ = ["take"]


def take(table: Any, indices: Any) -> Any:
    """table[indices] in the memory of the indices, for a table of one axis on the host.

    Args:
        indices: within the table; this is not checked, which is four times as fast.
    """
    if type(indices) is np.ndarray:
        return table.take(indices, mode="clip")
    return moved(table, indices)[indices]
