from itertools import pairwise

import pytest

from simdist.optim import warmup_cosine


def test_it_climbs_in_a_line_and_falls_in_a_cosine():
    rates = [warmup_cosine(step, 104, peak=2.0, warmup_steps=4) for step in range(104)]
    assert rates[:5] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert rates[54] == pytest.approx(1.0)  # half way down
    assert rates[4 + 25] == pytest.approx(1 + 0.5**0.5)  # a quarter: cos 45°
    assert all(a > b > 0 for a, b in pairwise(rates[4:]))


def test_it_ends_at_the_floor():
    assert warmup_cosine(100, 100, peak=2.0, warmup_steps=4, floor=0.1) == pytest.approx(0.2)


def test_a_run_may_be_all_warm_up():
    assert [warmup_cosine(step, 2, 1.0, 4) for step in range(2)] == [0.25, 0.5]
    assert warmup_cosine(0, 1, 1.0, 0) == 1.0
