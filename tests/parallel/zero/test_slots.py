"""Slots: units that are needed at the same time, one layer ahead or behind counted in, never share memory."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simdist.nn import Parameter, Parameters
from simdist.parallel.zero.slots import Slots
from simdist.parallel.zero.unit import Unit

LIVES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3), st.integers(0, 50)), max_size=20)


def units(lives):
    return [
        Unit(Parameters([Parameter("x", (size,))]), 0, size, slice(0, size), first, first + more)
        for first, more, size in lives
    ]


@given(LIVES)
def test_neighbours_never_share(lives):
    given_units = units(lives)
    slots = Slots.shared(given_units)
    for (a, one), (b, other) in combinations(enumerate(given_units), 2):
        if max(one.first, other.first) <= min(one.last, other.last) + 1:
            assert slots.of[a] != slots.of[b]
    rooms = slots.cut(np.zeros(slots.size))
    assert [len(room) for room in rooms] == [unit.room for unit in given_units]
    for (a, one), (b, other) in combinations(enumerate(rooms), 2):
        assert not np.shares_memory(one, other) or slots.of[a] == slots.of[b]


@given(LIVES)
def test_there_are_no_more_than_are_in_use_at_once(lives):
    given_units = units(lives)
    most = max((sum(u.first <= k <= u.last + 1 for u in given_units) for k in range(20)), default=0)
    assert len(Slots.shared(given_units).sizes) == most


def test_layers_take_turns_in_two_and_tied_weights_have_their_own():
    slots = Slots.shared(units([(0, 4, 100), (1, 0, 7), (2, 0, 9), (3, 0, 8), (4, 0, 1)]))
    assert slots.of == [0, 1, 2, 1, 2] and slots.sizes == [100, 8, 9]


def test_a_unit_takes_the_free_slot_of_the_nearest_size():
    slots = Slots.shared(units([(0, 0, 10), (0, 0, 100), (2, 0, 100), (2, 0, 10), (4, 0, 9), (4, 0, 99)]))
    assert slots.of == [0, 1, 1, 0, 0, 1] and slots.size == 110


def test_apart_they_lie_end_to_end():
    slots = Slots.apart(units([(0, 0, 3), (1, 0, 2)]))
    assert slots.size == 5 and [room.tolist() for room in slots.cut(np.arange(5))] == [[0, 1, 2], [3, 4]]
