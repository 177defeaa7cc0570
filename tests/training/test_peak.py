from itertools import accumulate

import numpy as np
import pytest

import simdist as sd
from simdist.comm.solo import SoloCommunicator
from simdist.training.peak import matmul_flops_per_s


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_machine_multiplies_some_millions_of_numbers_a_second_at_least(dtype):
    assert 1e6 < matmul_flops_per_s(SoloCommunicator(), dtype, size=64) < 1e15


def test_a_product_of_n_by_n_numbers_takes_2n3_operations(monkeypatch):
    comm = SoloCommunicator()
    took_s = [100, 1, 1, 1, 1, 2, 4, 4, 4, 4]  # the first is no measurement; the median of the others is 2
    seconds = iter(accumulate(s for took in took_s for s in (0, took)))
    monkeypatch.setattr(comm, "clock", lambda: float(next(seconds)))
    assert matmul_flops_per_s(comm, np.float64, size=8) == 2 * 8**3 / 2


def test_where_no_clock_moves_there_is_no_rate():
    assert sd.run(matmul_flops_per_s, 2, args=(np.float32, 8)).results == [0, 0]
