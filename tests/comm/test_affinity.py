"""Who shares cores with whom."""

import numpy as np
import pytest

from simdist import environment
from simdist.comm.affinity import MOST_CORES, affinity, set_mask


def masks(*ranks):
    found = np.zeros((len(ranks), MOST_CORES), np.uint8)
    for rank, cores in enumerate(ranks):
        found[rank, list(cores)] = 1
    return found


@pytest.mark.parametrize(
    ("cores", "oversubscribed", "near"),
    [
        ([[0], [1]], False, {1}),  # each has its own
        ([[0, 1], [0, 1]], False, {0, 1}),  # there is one for each, wherever they run
        ([[0], [1], [0], [1]], True, {1, 3}),  # bound, two to a core: who waits for 0 or 2 keeps no core from them
        ([[0, 1]] * 3, True, {0, 1, 2}),
        ([[0], [1], [0, 1]], True, {0, 1, 2}),  # the last may run on either
        ([[3], [3]], True, {0, 1}),
    ],
)
def test_ranks_on_cores(monkeypatch, cores, oversubscribed, near):
    monkeypatch.setattr(environment, "place", lambda: None)
    assert affinity(masks(*cores), 1) == (oversubscribed, near)


def test_ranks_of_other_groups_count(monkeypatch):
    monkeypatch.setattr(environment, "place", lambda: (0, 4, 4))
    assert affinity(masks([0, 1], [0, 1]), 0).oversubscribed
    assert not affinity(masks([0], [1]), 0).oversubscribed


def test_ranks_of_other_nodes_do_not(monkeypatch):
    monkeypatch.setattr(environment, "place", lambda: (0, 8, 2))
    assert not affinity(masks([0, 1], [0, 1]), 0).oversubscribed


def test_a_process_marks_its_cores(monkeypatch):
    monkeypatch.setattr(environment, "cores", lambda: [1, 3, MOST_CORES])
    mine = np.ones(MOST_CORES, np.uint8)
    set_mask(mine)
    assert np.flatnonzero(mine).tolist() == [1, 3] and mine.sum() == 2
