"""Peak: how fast this machine multiplies matrices."""

from statistics import median
from typing import Any

from simdist.arrays import empty
from simdist.arrays.matmul import matmul
from simdist.comm import Communicator

__all__ = ["matmul_flops_per_s"]

_REPEATS = 9  # after a warm-up; the median counts


def matmul_flops_per_s(comm: Communicator, dtype: Any, size: int | None = None) -> float:
    """Floating-point operations a second of this rank, while all ranks multiply matrices at once; all must call.

    Args:
        dtype: of the factors; one that the matrix library of the ranks' device supports.
        size: of the square factors; if not given, large enough for the device.

    Returns:
        0 if no time passed.
    """
    size = size or comm.device.large
    x, y = (empty(comm.device.kind, (size, size), dtype) for _ in range(2))
    x[...] = 1
    comm.device.synchronize()
    comm.barrier()
    times_s = []
    for _ in range(1 + _REPEATS):
        start_s = comm.clock()
        matmul(x, x, out=y)
        comm.device.synchronize()
        times_s.append(comm.clock() - start_s)
    comm.barrier()  # so that no rank has the machine to itself at the end
    took_s = median(times_s[1:])
    return 2 * size**3 / took_s if took_s > 0 else 0.0
