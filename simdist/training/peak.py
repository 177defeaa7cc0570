"""Peak: how fast this machine multiplies matrices."""

from statistics import median
from typing import Any

import numpy as np

from simdist.comm import Communicator

__all__ = ["matmul_flops_per_s"]


def matmul_flops_per_s(comm: Communicator, dtype: Any, size: int = 512, repeats: int = 9) -> float:
    """Floating-point operations a second of this rank, while all ranks multiply matrices at once; all must call.

    Args:
        dtype: of the factors; float32 or float64, which is what the matrix library knows.
        size: of the square factors.
        repeats: products of which the median counts, after one that does not.

    Returns:
        0 where no clock moved.
    """
    x, y = np.ones((size, size), dtype), np.empty((size, size), dtype)
    comm.barrier()
    times_s = []
    for _ in range(repeats + 1):
        start_s = comm.clock()
        np.matmul(x, x, out=y)
        times_s.append(comm.clock() - start_s)
    comm.barrier()  # so that none has it to itself in the end
    took_s = median(times_s[1:])
    return 2 * size**3 / took_s if took_s > 0 else 0.0
