import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simdist.errors import ArgumentError
from simdist.training.checkpoint import Box
from simdist.training.checkpoint.box import overlapping

SHAPE = (4, 5, 3)

shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)


def pair(length):
    return st.tuples(st.integers(0, length), st.integers(0, length)).map(sorted).map(tuple)


boxes = st.tuples(*(pair(length) for length in SHAPE)).map(Box)


def mask(*some, shape=SHAPE):
    """How often each item is in the boxes."""
    counts = np.zeros(shape, int)
    for box in some:
        counts[box.within(Box.whole(shape))] += 1
    return counts


@given(shapes, st.data())
def test_a_stretch_is_its_items_in_order_in_few_boxes(shape, data):
    x = np.arange(math.prod(shape)).reshape(shape)
    start, stop = data.draw(pair(x.size))
    found = Box.stretch(start, stop, shape)
    items = [x[box.within(Box.whole(shape))].reshape(-1) for box in found]
    assert np.concatenate([*items, []]).tolist() == list(range(start, stop))
    assert len(found) <= max(1, 2 * len(shape) - 1)
    assert all(box.size for box in found)


@given(boxes, boxes)
def test_two_boxes_compared_as_masks_say(a, b):
    both = (mask(a) * mask(b)).astype(bool)
    common = a.common(b)
    np.testing.assert_array_equal(mask(*([common] if common else [])), both)
    np.testing.assert_array_equal(mask(*a.without(b)), mask(a) * ~both)
    if a.size and b.size:
        assert a.holds(b) == (both.sum() == b.size)


@given(st.lists(boxes.filter(lambda box: box.size), max_size=6))
def test_finds_an_overlap_if_there_is_one(some):
    overlap = overlapping(some)
    assert (overlap is None) == all(a.common(b) is None for a, b in combinations(some, 2))
    assert overlap is None or overlap[0].common(overlap[1])


@given(boxes, boxes)
def test_rows_are_the_items_that_they_say(outer, inner):
    part = outer.common(inner)
    if part is None:
        return
    items = np.arange(60).reshape(SHAPE)[outer.within(Box.whole(SHAPE))]
    before, rows = outer.rows(part)
    flat = items.reshape(-1)[before : before + rows.size].reshape(rows.shape)
    np.testing.assert_array_equal(flat[part.within(rows)], items[part.within(outer)])


def test_a_single_number_is_a_box_without_axes():
    number = Box.whole(())
    assert number.size == 1 and number.shape == () and number.fits(())
    assert number.common(number) == number and number.without(number) == []
    assert number.rows(number) == (0, number)
    assert overlapping([number]) is None and overlapping([number, number])


def test_an_index_is_what_numpy_takes_it_for():
    x = np.empty((4, 5, 3))
    for index in [(), (slice(1, 3),), (slice(-2, None), slice(None)), (slice(3, 1), slice(2), slice(0, 99))]:
        assert Box.of(index, x.shape).shape == x[index].shape
    for index in [(slice(0, 4, 2),), (slice(None),) * 4]:
        with pytest.raises(ArgumentError, match="no box"):
            Box.of(index, x.shape)


def test_seen_from_the_tensor_and_from_a_part_of_it():
    part, outer = Box(((1, 2), (0, 3))), Box(((4, 8), (2, 6)))
    assert part.inside(outer) == Box(((5, 6), (2, 5)))
    x = np.arange(80).reshape(10, 8)
    there = x[outer.within(Box.whole(x.shape))]
    np.testing.assert_array_equal(x[part.inside(outer).within(Box.whole(x.shape))], there[1:2, 0:3])
    assert not Box(((0, 2), (0, 9))).fits((2, 8)) and not Box(((-1, 2),)).fits((2,)) and not Box(()).fits((2,))
