"""Numbers that tell who has gone into them."""

import random

import numpy as np
import pytest

from simdist.collectives.contributions import MOST_RANKS, Code, State, states
from simdist.errors import ArgumentError
from simdist.trace import Span


@pytest.mark.parametrize("p", [1, 2, 5, MOST_RANKS])
def test_sums_name_their_place_and_all_that_has_gone_in(p):
    code, rng = Code(p, 4 * p), random.Random(p)
    for _ in range(50):
        who = sorted(rng.choices(range(p), k=rng.randrange(1, min(p, 7) + 1)))  # some twice
        place = rng.randrange(4 * p)
        total = sum(code.of(rank)[place] for rank in who)
        assert code.read(np.array([total])) == [(place, tuple(who))]


def test_the_sum_of_all_sixteen_fits():
    code = Code(MOST_RANKS, 4 * MOST_RANKS)
    total = sum(code.of(rank).astype(object) for rank in range(MOST_RANKS))
    assert max(total) < 2**63
    assert code.read(np.array(total, np.int64))[-1] == (4 * MOST_RANKS - 1, tuple(range(MOST_RANKS)))


@pytest.mark.parametrize("leftover", [0, -1, 2**62, 8**4 * 3, 8**4 * 17 + 1])
def test_other_numbers_say_nothing(leftover):
    assert Code(4, 16).read(np.array([leftover])) == []


def test_numbers_of_another_kind_say_nothing():
    for dtype in (np.uint8, np.float64):
        assert Code(2, 8).read(np.array([64 + 1], dtype)) == []


def test_sums_of_different_places_say_nothing():
    code = Code(2, 8)
    assert code.read(code.of(0)[1:2] + code.of(1)[2:3]) == []


def test_a_piece_that_is_part_of_another_is_left_out():
    code = Code(3, 2)
    arrays = [code.of(0), code.of(0) + code.of(1), code.of(2)[:1]]
    assert code.holdings(arrays) == (((0, 1), (2,)), ((0, 1),))


def test_a_sum_is_part_of_one_that_counts_somebody_twice_not_the_other_way_round():
    code = Code(2, 1)
    once, twice = code.of(0) + code.of(1), code.of(0) + 2 * code.of(1)
    assert code.holdings([once, twice]) == (((0, 1, 1),),)


def test_two_sums_that_overlap_both_stay():
    code = Code(3, 1)
    assert code.holdings([code.of(0) + code.of(1), code.of(1) + code.of(2)]) == (((0, 1), (1, 2)),)


def test_states_survive_the_record():
    state = State(2, 3, (((0, 1), (2,)), ()), ((1, (0, 1)),), (((0, 1, 2),), ((0, 1, 2),)), "all_reduce ring")
    assert states([Span(2, "states", "state", 3.0, 3.0, detail=state.detail())]) == [state]


def test_a_record_without_states():
    with pytest.raises(ArgumentError, match="no states"):
        states([Span(0, "main", "send", 0.0, 1.0)])
