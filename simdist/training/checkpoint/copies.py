"""Copies: how probable it is that checkpoints in the memory of other machines outlast failures of some at once.

    N  machines, in groups of m      m  copies of each machine's part: one on each machine of its group
    k  machines that fail at once

        [0 1] [2 3] [4 5] [6 7]         N = 8, m = 2: 2 and 4 may fail, but not 2 and 3

All is well unless a whole group fails. Of all sets of k machines, C(N, k), the groups in turn, less those that hold
two of them, and so on, leave out

    Σ_j (-1)^(j+1) C(N/m, j) C(N - jm, k - jm)          for k < 2m its first term alone, N/m C(N-m, k-m)

Source: Wang et al. 2023, SOSP, "GEMINI: Fast Failure Recovery in Distributed Training with In-Memory Checkpoints".
"""

from math import comb

from simdist.errors import ArgumentError, as_declared, require_least

__all__ = ["copies_survive"]


@as_declared
def copies_survive(machines: int, copies: int, failures: int) -> float:
    """1 - N/m C(N-m, k-m) / C(N, k), for k < 2m: the probability that of each part of a checkpoint a copy is left.

        copies_survive(16, 2, 3)                        # 0.8; of a thousand machines 0.997

    Else a checkpoint on disk, which is written less often, is the last.

    Args:
        machines, copies, failures: N, a multiple of m, m and k.

    Raises:
        ArgumentError: there are no copies, N is no multiple of m above 0, or k is not from 0 to N.
    """
    require_least("copies", copies, 1)
    if machines < copies or machines % copies:
        raise ArgumentError(f"{machines} machines, {copies} copies; needs a multiple of the copies")
    if failures > machines:
        raise ArgumentError(f"failures is {failures}; needs at most {machines}, the machines")
    groups = machines // copies
    lost = sum(
        (1 if j % 2 else -1) * comb(groups, j) * comb(machines - j * copies, failures - j * copies)
        for j in range(1, failures // copies + 1)
    )
    return 1 - lost / comb(machines, failures)
