"""Revolve against the shortest ways through all that could be done with so many checkpoints."""

from functools import cache
from heapq import heappop, heappush

import pytest

from simdist.errors import ArgumentError
from simdist.nn.formulas import revolve_forwards, revolve_layers


def least_forwards(layers, checkpoints):
    """Of layers, before those of backward, by Dijkstra over what is at hand, what is kept, and what backward needs."""
    queue, done = [(0, 0, frozenset({0}), layers)], set()
    while queue:
        cost, at, kept, left = heappop(queue)
        if not left:
            return cost
        if (at, kept, left) in done:
            continue
        done.add((at, kept, left))
        for start in {at, *kept}:  # go on from here, or from an input that is kept
            if start == left - 1:
                heappush(queue, (cost, start, kept, left - 1))
            elif start < left:
                heappush(queue, (cost + 1, start + 1, kept, left))
        for fewer in (kept, *(kept - {old} for old in kept)):  # keep this one
            if len(fewer) < checkpoints:
                heappush(queue, (cost, at, fewer | {at}, left))
    return None


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 4])
def test_no_order_takes_fewer_forwards(checkpoints):
    for layers in range(1, 9):
        assert revolve_forwards(layers, checkpoints) == least_forwards(layers, checkpoints)


@cache
def recursive(layers, checkpoints):
    """The same by where the second checkpoint is: Griewank, Walther 2000, section 3."""
    if checkpoints == 1 or layers == 1:
        return layers * (layers - 1) // 2
    return min(k + recursive(layers - k, checkpoints - 1) + recursive(k, checkpoints) for k in range(1, layers))


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 5, 8])
def test_many_layers(checkpoints):
    found = [revolve_forwards(layers, checkpoints) for layers in range(1, 60)]
    assert found == [recursive(layers, checkpoints) for layers in range(1, 60)]
    for r in range(1, 4):
        most = revolve_layers(checkpoints, r)  # beyond which a layer more is computed once more than r times
        assert revolve_forwards(most + 1, checkpoints) - revolve_forwards(most, checkpoints) == r + 1
        assert revolve_forwards(most, checkpoints) - revolve_forwards(most - 1, checkpoints) == r


def test_what_is_known_of_it():
    assert [revolve_layers(3, r) for r in range(6)] == [1, 4, 10, 20, 35, 56]
    assert revolve_layers(8, 3) == 165
    assert revolve_forwards(96, 96) == 95  # full recomputation: all but the last layer twice
    assert revolve_forwards(10**9, 1) == 10**9 * (10**9 - 1) // 2
    for what, given in ((revolve_layers, (0, 1)), (revolve_forwards, (4, 0))):
        with pytest.raises(ArgumentError, match="checkpoints is 0; needs at least 1"):
            what(*given)
    with pytest.raises(ArgumentError, match="layers is 0; needs at least 1"):
        revolve_forwards(0, 1)
