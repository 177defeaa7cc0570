"""Rotation: what goes round a ring comes home once from every rank."""

import numpy as np
import pytest

from simdist.arrays import Meter, metered
from simdist.parallel.sequence.rotation import summed_rotation


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_every_rank_adds_to_every_sum_once_and_all_but_its_first_are_charged(spmd, p):
    """To the sums about block j rank r adds (j + 1) 10**r; a rank adds two sums p-1 times."""

    def program(comm):
        total = np.zeros(6, np.int64)
        with metered(meter := Meter()):
            for owner, block, sums in summed_rotation(np.full(6, comm.rank + 1), comm, total):
                assert (block == owner + 1).all()
                sums += block * 10**comm.rank
        return total.tolist(), meter.flops, meter.bytes

    once = sum(10**r for r in range(p))
    assert spmd(program, p) == [([(r + 1) * once] * 6, 6 * (p - 1), 3 * 48 * (p - 1)) for r in range(p)]
