"""The automatic scheduler, against the paper's figures, the schedules by hand, all orders there are, and its bound."""

from functools import cache
from itertools import permutations, product
from math import inf

import pytest

from simdist.errors import ArgumentError, ScheduleError
from simdist.parallel.pipeline import (
    BackwardInput,
    BackwardWeight,
    Forward,
    Memory,
    Schedule,
    Times,
    schedule,
    simulate,
    validate,
)
from simdist.parallel.pipeline.schedules.automatic import ZB_MEMORY, lower_bound
from simdist.parallel.pipeline.schedules.automatic.dispatch import Rules, dispatch
from simdist.parallel.pipeline.schedules.automatic.problem import problem
from simdist.parallel.pipeline.schedules.automatic.search import search
from simdist.parallel.pipeline.simulate import Simulation

# arXiv 2401.10241, tables 5 and 9, with the times that it measured: p, m, TF, TB, TW, Tcomm; ZB-2p; and M_W : M_B
PUBLISHED = [
    (8, 24, 18.522, 18.086, 9.337, 0.601, 0.0433, 0.366),
    (8, 32, 18.513, 18.086, 9.331, 0.626, 0.0039, 0.366),
    (8, 64, 18.546, 18.097, 9.321, 0.762, 0.0026, 0.366),
    (8, 24, 29.718, 29.444, 19.927, 0.527, 0.0029, 0.432),
    (8, 32, 29.802, 29.428, 19.530, 0.577, 0.0022, 0.432),
    (8, 64, 29.935, 29.621, 19.388, 0.535, 0.0010, 0.432),
    (16, 48, 11.347, 11.248, 8.132, 0.377, 0.0066, 0.432),
    (16, 64, 11.307, 11.254, 8.101, 0.379, 0.0054, 0.432),
    (16, 128, 11.325, 11.308, 8.109, 0.378, 0.0028, 0.432),
    (32, 96, 10.419, 10.207, 7.715, 0.408, 0.0038, 0.432),
    (32, 128, 10.408, 10.204, 7.703, 0.408, 0.0029, 0.432),
    (32, 256, 10.402, 10.248, 7.698, 0.460, 0.0018, 0.432),
]


EQUAL = Times()


def cost(run: Simulation) -> float:
    return max(map(run.span, range(run.schedule.num_ranks)))


def found(p, m, limit=None, times=EQUAL, memory=ZB_MEMORY):
    """The simulation of what is found: valid, within the limit, and not below the bound."""
    one = schedule("zb-auto", stages=p, micro_batches=m, memory_limit=limit, times=times, memory=memory)
    limit = 2 * p * memory.backward if limit is None else limit
    assert max(validate(one, memory).memory) <= limit * (1 + 1e-9)
    run = simulate(one, times)
    assert cost(run) >= lower_bound(p, m, limit, times, memory) * (1 - 1e-12)
    return run


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    "case", [*PUBLISHED[:2], *(pytest.param(case, marks=pytest.mark.slow) for case in PUBLISHED[2:])]
)
def test_published_bubble_rates_are_met(case):
    p, m, f, b, w, hop, zb_2p, ratio = case
    for m_w in (ratio, 0.5):  # the paper's table 1 for its models; and what is assumed where nothing is said
        run = found(p, m, 2 * p, Times(f, b, w, hop), Memory(1, m_w))
        assert round(run.own_bubble_rate, 4) <= zb_2p


def test_a_long_pipeline_warms_up_for_as_long_as_its_times_say():
    p, m, f, b, w, hop, *_ = PUBLISHED[-1]  # of so many stages few rules can be tried
    given = problem(p, m, Times(f, b, w, hop), ZB_MEMORY, 2.0 * p)
    assert search(given).cost == pytest.approx(lower_bound(p, m, 2 * p, Times(f, b, w, hop), ZB_MEMORY))


def test_no_schedule_has_the_published_rates_where_weights_keep_as_much():
    p, m, f, b, w, hop, zb_2p, _ = PUBLISHED[1]
    least = lower_bound(p, m, 2 * p, Times(f, b, w, hop), Memory(1, 1))
    assert 1 - m * (f + b + w) / least > 0.07 > zb_2p
    assert found(p, m, 2 * p, Times(f, b, w, hop), Memory(1, 1)).own_bubble_rate < 0.0790


TIMES = [
    Times(),
    Times(1, 1, 0.5, 0.05),
    Times(10, 15, 5, 2),
    Times(3, 4, 6, 0.5),
    Times([1, 2, 1.5], 2, [1, 1, 3], 0.1),
]


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("times", [TIMES[0], *(pytest.param(times, marks=pytest.mark.slow) for times in TIMES[1:])])
@pytest.mark.parametrize("m_w", [0.4, 1.0, 1.5])
def test_more_memory_is_never_worse(times, m_w):
    p, m = 3, 7
    limits = [max(1, m_w), 2, 2.5, 3, 4, 5, 6, 6.25, 9, 14, inf]
    costs = [cost(found(p, m, limit, times, Memory(1, m_w))) for limit in limits]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("shape", [(1, 3), (2, 5), (3, 3), (5, 2), (4, 9)])
@pytest.mark.parametrize("times", TIMES[:3])
def test_no_worse_than_by_hand_in_the_same_memory(shape, times):
    p, m = shape
    for by_hand in ("zb-h1", "zb-h2"):
        other = schedule(by_hand, stages=p, micro_batches=m)
        for memory in (Memory(1, 1), Memory(30, 11)):
            limit = max(validate(other, memory).memory)
            assert cost(found(p, m, limit, times, memory)) <= cost(simulate(other, times)) * (1 + 1e-12)


def test_zero_bubble_where_times_are_equal():
    for p, m in [(2, 8), (4, 12), (8, 24)]:
        assert found(p, m, memory=Memory(1, 1)).own_bubble == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("m", "times", "memory", "limit", "least"),
    [
        (3, Times(), Memory(1, 1), 1, 3 * (1 + 1 + 1 + 1 + 1)),  # each alone: F, there F and B, then B and W
        (4, Times(2, 1, 1), Memory(1, 0.75), 3, 17),  # after the last B there is room for three W's, not for four
    ],
)
def test_a_bound_that_is_met_says_that_nothing_is_better(m, times, memory, limit, least):
    assert lower_bound(2, m, limit, times, memory) == least
    assert cost(found(2, m, limit, times, memory)) == pytest.approx(least)


@pytest.mark.parametrize("memory", [Memory(1, 0.5), Memory(1, 1), Memory(1, 2), Memory(1, 2.5)])
@pytest.mark.parametrize("limit", [2.5, 4, 5.5])
@pytest.mark.parametrize("wait", [0.0, 1e9])
def test_the_limit_is_kept_whatever_the_rules(wait, limit, memory):
    p, m = 3, 6
    waits = (wait,) * p
    rules = Rules((m,) * p, waits, waits, waits, waits, (wait == 0,) * p)
    times = Times(1, 1, [6, 1, 1])  # while a W goes on, several B's arrive
    for row in dispatch(problem(p, m, times, memory, limit), rules).rows:
        level = 0.0
        for letter in row:
            level += {"F": memory.backward, "B": memory.weight - memory.backward, "W": -memory.weight}[letter]
            assert 0 <= level <= limit
        assert sorted(row) == sorted("FBW" * m)


def test_what_is_assumed_where_nothing_is_said():
    options = {"stages": 4, "micro_batches": 8}
    assert schedule("zb-auto", **options) == schedule("zb-auto", **options, memory_limit=2 * 4)
    same, other = (schedule("zb-auto", **options, memory_limit=3, memory=Memory(1, m_w)) for m_w in (0.5, 1))
    assert schedule("zb-auto", **options, memory_limit=3) == same != other
    assert lower_bound(3, 5, 1) == lower_bound(3, 5, 1, Times(1, 1, 1, 0), Memory(1, 0.5))
    assert lower_bound(3, 5, 1) < lower_bound(3, 5, 1, memory=Memory(1, 1))


def test_units_do_not_matter():
    times = Times(10, 11, 7, 0.5)
    ones, many = found(4, 9, 6, times, Memory(1, 0.5)), found(4, 9, 6 * 2**20, times, Memory(2**20, 2**19))
    assert ones.schedule == many.schedule


@cache
def orders(m):
    """Every row of F's, I's and W's there is, each kind in the order of micro-batches."""
    rows = set(permutations("FIW" * m)) if m < 3 else set()
    return [
        row
        for row in rows
        if all(row[: k + 1].count("F") >= row[: k + 1].count("I") >= row[: k + 1].count("W") for k in range(3 * m))
    ]


@pytest.mark.parametrize("times", [Times(), Times(2, 3, 1, 0.5), Times(1, 2, 3, 0), Times([1, 3], [2, 1], [2, 2], 1)])
@pytest.mark.parametrize("limit", [1.0, 2.0])
def test_the_best_of_all_orders_for_two_stages_and_two_micro_batches(times, limit):
    kinds = {"F": Forward, "I": BackwardInput, "W": BackwardWeight}
    best = inf
    for rows in product(orders(2), repeat=2):
        counts = [dict.fromkeys(kinds, -1) for _ in rows]
        actions = []
        for row, count in zip(rows, counts, strict=True):
            actions.append([])
            for letter in row:
                count[letter] += 1
                actions[-1].append(kinds[letter](count[letter]))
        one = Schedule("one", actions)
        try:
            if max(validate(one, ZB_MEMORY).memory) <= limit:
                best = min(best, cost(simulate(one, times)))
        except ScheduleError:  # they wait for each other
            pass
    assert lower_bound(2, 2, limit, times) <= best
    assert cost(found(2, 2, limit, times)) == pytest.approx(best)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"memory_limit": 0.5}, r"within 0\.5 of memory, where M_B is 1\.0 .* holds one micro-batch"),
        ({"memory_limit": 1.5, "memory": Memory(1, 2)}, r"within 1\.5 of memory"),
        ({"memory_limit": float("nan")}, "within nan"),
        ({"memory": Memory(0, 1)}, "M_B above 0"),
        ({"times": Times([1, 2], 1, 1)}, "forward has 2 times; zb-auto has 4 stages"),
        ({"memory_limit": 0}, "zb-auto within 0 of memory"),
    ],
)
def test_what_cannot_be_sought(options, fault):
    with pytest.raises(ArgumentError, match=fault):
        schedule("zb-auto", stages=4, micro_batches=8, **options)


def test_ways_that_differ_count_each_by_its_own_time():
    times = Times(1, 1, 1, {(0, 1): 0, (1, 2): 0, (2, 1): 0, (1, 0): 5})
    run = simulate(schedule("zb-auto", stages=3, micro_batches=3, times=times), times)
    assert lower_bound(3, 3, times=times) == cost(run) == 16
