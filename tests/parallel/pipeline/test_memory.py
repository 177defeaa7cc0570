"""What is kept, action by action."""

import pytest

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Memory, parse
from simdist.parallel.pipeline.memory import levels


def kept(text, memory=None):
    return [tuple(level) for level in levels(parse(text), 0, memory or Memory())]


def test_a_whole_backward_lets_go_of_all():
    assert kept("F0 F1 B0 B1", Memory(10, 4)) == [(10, 10), (20, 20), (20, 10), (10, 0)]


def test_halves():
    assert kept("F0 I0 F1 W0", Memory(10, 4)) == [(10, 10), (10, 4), (14, 14), (14, 10)]


def test_what_is_left_may_be_more():
    assert kept("F0 I0 W0", Memory(10, 12)) == [(10, 10), (12, 12), (12, 0)]


def test_of_a_pair_the_new_one_is_there_before_the_old_one_goes():
    assert kept("F0 F1&B0 B1") == [(1, 1), (2, 1), (1, 0)]


def test_a_stage_of_two_on_a_rank_is_half_of_what_the_rank_has():
    assert kept("0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0", Memory(10)) == [(5, 5), (10, 10), (10, 5), (5, 0)]


def test_nothing_at_all():
    assert kept("F0 I0 W0", Memory(0, 0)) == [(0, 0)] * 3


@pytest.mark.parametrize("memory", [(-1, 0), (0, -1), (float("nan"), 1.0)])
def test_less_than_nothing(memory):
    with pytest.raises(ArgumentError, match="(backward|weight) is (-1|nan); needs at least 0"):
        Memory(*memory)
