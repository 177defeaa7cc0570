"""Checkpoints in memory: GEMINI's figures, and all sets of machines that may fail."""

from itertools import combinations

import pytest

from simdist.errors import ArgumentError
from simdist.training.checkpoint import copies_survive


@pytest.mark.parametrize(("failures", "percent"), [(1, 100), (2, 93.3), (3, 80.0)])
def test_sixteen_machines_in_the_paper(failures, percent):
    assert 100 * copies_survive(16, 2, failures) == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize(("machines", "copies"), [(6, 1), (6, 2), (8, 2), (9, 3), (6, 3), (4, 4)])
def test_of_all_machines_that_may_fail(machines, copies):
    groups = [set(range(i, i + copies)) for i in range(0, machines, copies)]
    for failures in range(machines + 1):
        sets = [set(failed) for failed in combinations(range(machines), failures)]
        well = sum(not any(group <= failed for group in groups) for failed in sets)
        assert copies_survive(machines, copies, failures) == pytest.approx(well / len(sets), abs=1e-12)


def test_machines_that_there_are_not():
    for wrong, message in (
        ((4, 0, 1), "copies is 0; needs at least 1"),
        ((5, 2, 1), "5 machines, 2 copies; needs a multiple"),
        ((0, 2, 0), "0 machines, 2 copies; needs a multiple"),
        ((4, 2, 5), "failures is 5; needs at most 4"),
    ):
        with pytest.raises(ArgumentError, match=message):
            copies_survive(*wrong)
