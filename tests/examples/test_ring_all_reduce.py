import numpy as np
import pytest

from simdist.examples.ring_all_reduce import main


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_every_contribution_is_in_the_sum_once(spmd, p):
    for x in spmd(main, p):
        np.testing.assert_array_equal(x, [int("1" * p)] * 8)
