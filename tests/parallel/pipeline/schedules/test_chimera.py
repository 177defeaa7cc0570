"""Chimera, beside its paper."""

from collections import Counter
from itertools import chain

import pytest

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Times, schedule, simulate, validate
from simdist.parallel.pipeline.formulas import formula

EQUAL, LONGER_BACK = Times(2, 1, 1), Times(1, 1, 1)  # TF = TB + TW, and half of it


def test_four_stages_as_drawn_in_the_paper():
    """Figure 3: micro-batches 0 and 1 go down, 2 and 3 up; rank 3 does what rank 0 does the other way."""
    rows = schedule("chimera", stages=4, micro_batches=4).rows
    drawn = [f"{type(action).__name__[0]}{action.micro_batch}" for row in rows[:2] for action in row]
    assert " ".join(drawn[:8]) == "F0 F1 F2 B2 F3 B3 B0 B1"
    assert " ".join(drawn[8:]) == "F0 F2 F1 F3 B2 B0 B3 B1"
    for r in (0, 1):
        mirrored = [type(action)((action.micro_batch + 2) % 4, action.chunk) for action in rows[3 - r]]
        assert list(rows[r]) == mirrored


@pytest.mark.parametrize("p", [2, 4, 8, 16])
@pytest.mark.parametrize("units", [1, 2, 5])
def test_table_2(p, units):
    m = units * p
    one = schedule("chimera", stages=p, micro_batches=m)
    said = formula("chimera", stages=p, micro_batches=m, times=EQUAL)
    assert simulate(one, EQUAL).bubble_rate == pytest.approx((p - 2) / (2 * m + p - 2)) == said.bubble_rate
    kept = validate(one).in_flight
    assert (min(kept), max(kept)) == (p / 2 + 1, p)
    assert kept == said.memory


@pytest.mark.parametrize(("p", "v"), [(4, 4), (8, 4), (8, 8), (12, 6), (16, 4), (16, 8)])
@pytest.mark.parametrize("units", [1, 3])
def test_table_3(p, v, units):
    m, f = units * p, v // 2  # f pipelines go down, and f up
    one = schedule("chimera", stages=p, micro_batches=m, chunks=v)
    said = formula("chimera", stages=p, micro_batches=m, times=EQUAL, chunks=v)
    assert said.filled and said.weight_copies == 2 * f == max(Counter(chain(*one.placement)).values())
    assert simulate(one, EQUAL).bubble_rate == pytest.approx((p - 2 * f) / (2 * f * m + p - 2 * f)) == said.bubble_rate
    kept = validate(one).in_flight
    assert (min(kept), max(kept)) == (p - p / (2 * f) + 1, p)
    assert kept == said.memory


def test_four_pipelines_of_eight_stages_start_four_ranks_apart():
    """Section 3.6: stage 0 of the second pipeline down is on rank 4, and those up are mirrored."""
    one = schedule("chimera", stages=8, micro_batches=8, chunks=4)
    for stage in range(8):
        ranks = {stage, (stage + 4) % 8, 7 - stage, (3 - stage) % 8}
        assert {r for r, stages in enumerate(one.placement) if stage in stages} == ranks
    starts = {
        action.micro_batch: r for r, row in enumerate(one.rows) for action in row[:2] if one.label(r, action)[0] == "0"
    }
    assert starts == {0: 0, 1: 0, 2: 7, 3: 7, 4: 4, 5: 4, 6: 3, 7: 3}


@pytest.mark.parametrize(("p", "v"), [(8, 3), (12, 8), (8, 16)])
def test_as_many_pipelines_as_an_even_divisor_of_the_stages(p, v):
    with pytest.raises(ArgumentError, match=f"{v} pipelines in both directions on {p} stages: needs an even divisor"):
        schedule("chimera", stages=p, micro_batches=p, chunks=v)


@pytest.mark.parametrize(("p", "forwards", "backwards"), [(4, 4, 6), (6, 6, 10), (8, 8, 14)])
def test_longer_backwards_are_all_on_the_critical_path(p, forwards, backwards):
    """Section 3.4 has C_f = 6 and C_b = 10 for six stages."""
    run = simulate(schedule("chimera", stages=p, micro_batches=p), LONGER_BACK)
    assert run.makespan == forwards * 1 + backwards * 2
    assert run.own_bubble == formula("chimera", stages=p, micro_batches=p, times=LONGER_BACK).bubble


def test_of_units_one_after_the_other_the_paper_speaks_where_both_ways_take_as_long():
    twice = {"stages": 4, "micro_batches": 8}
    assert formula("chimera", **twice, times=LONGER_BACK).bubble is None
    assert simulate(schedule("chimera", **twice), LONGER_BACK).own_bubble > 2 * 2
