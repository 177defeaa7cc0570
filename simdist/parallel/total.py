"""Total: the sum of one number over ranks."""

import numpy as np

from simdist.collectives import all_reduce
from simdist.comm import Communicator

__all__ = ["total"]


def total(own: float, comm: Communicator) -> float:
    """The sum of every rank's number, on all ranks, which must all call: an all-reduce of 8 bytes."""
    x = np.array([own], np.float64)
    all_reduce(x, comm)
    return float(x[0])
