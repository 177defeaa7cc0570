import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simdist.arrays import consecutive, partition, slices
from simdist.errors import ArgumentError

SIZES = st.integers(0, 10_000)
PARTS = st.integers(1, 300)


@given(SIZES, PARTS)
def test_cuts_as_numpy_does(n, p):
    runs = np.array_split(np.arange(n), p)
    assert [list(range(n))[cut] for cut in partition(n, p)] == [run.tolist() for run in runs]


@given(SIZES, PARTS, st.data())
def test_start_size_and_span_say_the_same_as_the_slices(n, p, data):
    parts = partition(n, p)
    i = data.draw(st.integers(0, p - 1))
    j = data.draw(st.integers(i, p))
    assert len(parts) == p
    assert parts[i] == slice(parts.start(i), parts.start(i) + parts.size(i))
    assert parts.span(i, j) == slice(parts.start(i), parts.start(j))
    assert parts.largest == max(parts.size(k) for k in range(p))
    assert parts.start(p) == n


def test_the_example_of_the_docstring():
    assert [[*range(10)][cut] for cut in partition(10, 4)] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


@pytest.mark.parametrize(("n", "p"), [(-1, 2), (3, 0), (3, -1), (2.5, 2), (30011.0, 7), (30011, 7.0)])
def test_refuses_what_cannot_be_cut(n, p):
    with pytest.raises(ArgumentError, match=f"cannot cut {n} items into {p} parts"):
        partition(n, p)


def test_one_that_is_refused_leaves_nothing_behind():
    """Numbers that are equal are one key of the cache: 10,007 items got the slices of 10,007.0."""
    with pytest.raises(ArgumentError, match=r"10007\.0"):
        partition(10_007.0, 3)
    assert np.zeros(10_007)[partition(10_007, 3)[2]].size == 3335


@pytest.mark.parametrize("i", [-1, 4])
def test_has_no_run_before_the_first_or_after_the_last(i):
    with pytest.raises(IndexError, match=f"run {i} of a partition into 4"):
        partition(10, 4)[i]


@given(SIZES, PARTS)
def test_slices_are_those_of_the_partition_made_once(n, p):
    assert slices(n, p) == tuple(partition(n, p))
    assert slices(n, p) is slices(n, p)


@given(st.lists(st.integers(0, 50), max_size=20))
def test_consecutive_slices_cut_as_numpy_does(lengths):
    items = np.arange(sum(lengths))
    runs = np.split(items, np.cumsum(lengths)[:-1]) if lengths else []
    assert [items[part].tolist() for part in consecutive(lengths)] == [run.tolist() for run in runs]
