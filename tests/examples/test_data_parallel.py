import math

import pytest

from simdist.examples.data_parallel import main


def test_it_runs_and_learns(spmd):
    losses = spmd(main, 2, 40, 64)
    assert all(loss < math.log(256) - 1 for loss in losses)


def test_the_parts_losses_are_those_of_the_whole(spmd):
    alone, parts = spmd(main, 1, 5, 8), spmd(main, 2, 5, 8)
    assert sum(parts) / 2 == pytest.approx(alone[0], rel=1e-4)
