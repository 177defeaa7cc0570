"""Schedules as data, and where stages are."""

import pytest

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Backward, Forward, Overlapped, Pipeline, Schedule, simulate, validate
from simdist.parallel.pipeline.placement import bidirectional, linear, looped, v_shape


def test_placements():
    assert linear(3) == ((0,), (1,), (2,))
    assert looped(2, 3) == ((0, 2, 4), (1, 3, 5))
    assert v_shape(3) == ((0, 5), (1, 4), (2, 3))
    assert bidirectional(4) == ((0, 3), (1, 2), (1, 2), (0, 3))


def test_what_is_not_given_is_linear_and_counted():
    mine = Schedule("mine", [[Forward(0), Forward(1), Backward(0), Backward(1)], [Forward(0), Backward(0)]])
    assert (mine.num_ranks, mine.num_stages, mine.num_micro_batches, mine.share) == (2, 2, 2, 1)
    assert mine.is_linear
    assert str(mine) == "F0 F1 B0 B1\nF0 B0"
    assert mine.label(0, Overlapped(Forward(1), Backward(0))) == "F1&B0"
    assert Schedule("idle", [[], []]).num_micro_batches == 0
    assert Schedule("more", [[Forward(0)]], num_micro_batches=3).num_micro_batches == 3


def test_stages_are_told_where_a_rank_has_several():
    one = Schedule("v", [[Forward(0), Forward(0, 1)], [Forward(0), Forward(0, 1)]], v_shape(2))
    assert str(one) == "0F0 3F0\n1F0 2F0"
    assert (one.num_stages, one.share) == (4, 0.5)
    assert one.stage(1, Forward(0, 1)) == 2
    assert one.label(1, Overlapped(Forward(4), Backward(3, 1))) == "1F4&2B3"


def test_equal_by_what_they_say():
    rows = [[Forward(0), Backward(0)]]
    assert Schedule("a", rows) == Schedule("a", tuple(map(tuple, rows)))
    assert hash(Schedule("a", rows)) == hash(Schedule("a", rows, linear(1), 1)) == hash(Schedule("a", rows, [[0]]))
    assert Schedule("a", rows, [[0]]).is_linear
    assert Schedule("a", rows) != Schedule("a", [[Forward(0)]])


def test_rows_that_fit_nothing():
    with pytest.raises(ArgumentError, match="no rows"):
        Schedule("a", [])
    with pytest.raises(ArgumentError, match="1 rows, but a placement on 2 ranks"):
        Schedule("a", [[Forward(0)]], linear(2))
    with pytest.raises(ArgumentError, match=r"weights of schedule a is 'flush'; needs Weights, such as Weights\("):
        Schedule("a", [[Forward(0)]], weights="flush")
    for rows, told in (
        ([[Forward(0)], ["B0"]], r"row 1 of schedule a is \['B0'\]; needs actions, such as"),
        ([Forward(0)], r"row 0 of schedule a is Forward\(micro_batch=0, chunk=0\); needs actions"),
        ([[Forward]], r"row 0 of schedule a is \[<class .*Forward'>\]; needs actions"),
    ):
        with pytest.raises(ArgumentError, match=told):
            Schedule("a", rows)


@pytest.mark.parametrize("given", ["1f1b", [[Forward(0), Backward(0)]]])
@pytest.mark.parametrize("use", [simulate, validate, lambda given: Pipeline(None, None, None, 0, given)])
def test_a_name_and_rows_are_no_schedule(use, given):
    with pytest.raises(ArgumentError, match=r"schedule is .*; needs a Schedule, such as schedule\('1f1b', stages=4"):
        use(given)
