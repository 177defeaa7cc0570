"""Holding: where stretches of a whole vector lie in a rank's own."""

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.parallel.holding import Holding

STRETCHES = [slice(2, 5), slice(5, 5), slice(8, 12), slice(15, 16)]


def test_of_all_is_the_vector_itself():
    holding = Holding.of_all(7)
    assert holding.size == 7 and holding.own(slice(2, 5)) == slice(2, 5)


@pytest.mark.parametrize("rooms", [None, [4, 0, 4, 3]])
def test_own_finds_what_is_held_of_any_span(rooms):
    holding, whole = Holding(STRETCHES, rooms), np.arange(1, 21)
    own = np.zeros(holding.size, int)
    for shard in holding.shards(own):
        shard.data[...] = whole[shard.start : shard.start + len(shard.data)]
    held = {i for stretch in STRETCHES for i in range(stretch.start, stretch.stop)}
    assert sorted(set(own) - {0}) == [whole[i] for i in sorted(held)]
    for start in range(20):
        for stop in range(start, 21):
            found = own[holding.own(slice(start, stop))]
            assert found[found > 0].tolist() == [whole[i] for i in range(start, stop) if i in held]


def test_shards_are_views():
    holding = Holding(STRETCHES, [3, 2, 4, 1])
    own = np.zeros(holding.size)
    for shard in holding.shards(own):
        shard.data[...] = 1
    assert own.tolist() == [1, 1, 1, 0, 0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("stretches", "rooms"),
    [([slice(3, 2)], None), ([slice(0, 3), slice(2, 4)], None), (STRETCHES, [1, 0, 4, 1]), (STRETCHES, [3])],
)
def test_what_does_not_fit_is_refused(stretches, rooms):
    with pytest.raises(ArgumentError, match="are not in order, or overlap|needs one each, at least as long"):
        Holding(stretches, rooms)
