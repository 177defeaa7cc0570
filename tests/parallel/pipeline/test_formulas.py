"""What papers say, beside what is simulated."""

from collections import Counter
from itertools import chain

import pytest
from pipeline_training import BOTH_WAYS

from simdist.errors import ArgumentError, UnknownNameError
from simdist.parallel.pipeline import Memory, Times, paper, schedule, schedules, simulate, validate, versions
from simdist.parallel.pipeline.formulas import bpipe_kept, formula, has_formula

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


def test_late_ranks_end_after_the_first_where_weights_take_longer_than_inputs():
    for name, least in (("zb-h1", 1), ("zb-h2", 2)):
        for b in (0.5, 1, 2):
            times = Times(2, b, 1)
            said = formula(name, stages=4, micro_batches=8, times=times)
            found = simulate(schedule(name, stages=4, micro_batches=8), times)
            assert found.own_bubble == pytest.approx(said.bubble)
            assert said.makespan_rate == (None if b < least else pytest.approx(found.bubble_rate))


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("name", schedules())
def test_memory_and_versions_of_each_rank(name, p):
    if (name in BOTH_WAYS and p == 1) or name == "zb-auto":  # of what a search finds no formula is known
        return
    m, memory = 4 * p, Memory(10, 4)
    one = schedule(name, stages=p, micro_batches=m)
    said = formula(name, stages=p, micro_batches=m, times=Times(), memory=memory)
    found = validate(one, memory).memory
    if name in ("v-half", "v-min"):  # the paper says what the fullest rank keeps, of M_W as of M_B
        found = [min(said.memory[0], max(validate(one).memory) * 10)] * p
    assert found == pytest.approx(said.memory)
    assert tuple(max(stage.most for stage in chunks) for chunks in versions(one)) == said.weight_versions


@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("name", [name for name in schedules() if name != "zb-auto"])
def test_few_and_odd_numbers_of_micro_batches(name, p):
    if name in BOTH_WAYS and p % 2:
        return
    for m in range(1, 3 * p + 2):
        one = schedule(name, stages=p, micro_batches=m)
        said = formula(name, stages=p, micro_batches=m, times=Times(), memory=Memory(10, 4))
        if said.filled and said.bubble is not None:  # of the V-shapes' the paper gives the part that grows with p
            assert simulate(one).own_bubble == pytest.approx(said.bubble, abs=0.5 if name in ("v-half", "v-min") else 0)
        if said.filled and said.makespan_rate is not None and name not in ("v-half", "v-min"):
            assert simulate(one).bubble_rate == pytest.approx(said.makespan_rate)
        kept = validate(one, Memory(10, 4)).memory
        assert all(own <= most for own, most in zip(kept, said.memory, strict=True))
        if name in ("zb-h1", "zb-h2"):
            assert kept == said.memory
    enough = formula(name, stages=p, micro_batches=4 * p, times=Times())
    assert enough.filled
    assert (enough.bubble is None) == (name in ("chimera", "bitpipe", "hanayo") or name.startswith("pipedream"))


@pytest.mark.parametrize("name", ["gpipe", "zb-h1", "dualpipe"])
def test_formulas_without_times_are_of_equal_ones_as_in_simulate(name):
    made = schedule(name, stages=4, micro_batches=8)
    said = formula(name, stages=4, micro_batches=8)
    assert said == paper(made) == formula(name, stages=4, micro_batches=8, times=Times(1, 1, 1))
    if name == "gpipe":
        assert said.bubble_rate == pytest.approx(3 / 11)
        assert said.bubble_rate / (1 - said.bubble_rate) == pytest.approx(3 / 8)


@pytest.mark.parametrize("p", [2, 4, 6])
def test_several_units_of_chimera_in_a_row(p):
    for m in (p, 2 * p, 3 * p):
        for times in (Times(2, 1, 1), Times(3, 1.5, 1.5), Times(1, 1, 1), Times(3, 1, 1)):
            said = formula("chimera", stages=p, micro_batches=m, times=times).bubble
            if m == p or times.forward == 2 * times.backward_input:
                assert simulate(schedule("chimera", stages=p, micro_batches=m), times).own_bubble == said
            else:
                assert said is None


@pytest.mark.parametrize("d", [4, 8, 16, 32])
def test_the_table_of_chimera(d):
    """arXiv 2107.06925, table 2: bubble ratios if a backward takes as long as a forward, and twice as long."""
    alike, twice = Times(2, 1, 1), Times(1, 1, 1)
    for n, times, ratio in ((d, alike, (d - 2) / (2 * d + d - 2)), (d, twice, (d - 2) / (3 * d / 2 + d - 2))):
        assert formula("chimera", stages=d, micro_batches=n, times=times).bubble_rate == pytest.approx(ratio)
    n = 4 * d
    found = formula("chimera", stages=d, micro_batches=n, times=alike)
    assert found.bubble_rate == pytest.approx((d - 2) / (2 * n + d - 2))
    assert (min(found.memory), max(found.memory)) == (d / 2 + 1, d)
    for name in ("gpipe", "dapple"):
        assert formula(name, stages=d, micro_batches=n, times=twice).bubble_rate == pytest.approx((d - 1) / (n + d - 1))


def test_times_that_a_formula_cannot_mean():
    assert formula("zb-h2", stages=4, micro_batches=8, times=Times(1, 1, 2)).bubble is None
    assert formula("zb-h2", stages=3, micro_batches=1, times=Times(1, 1, 2)).bubble_rate is None
    assert formula("gpipe", stages=4, micro_batches=8, times=Times(0, 0, 0)).bubble_rate == 0


def test_pairs_that_save_time_shorten_the_work_too():
    times = Times(overlapped=2)  # so what the bubble is a part of is not m (F+B+W)
    said = formula("dualpipe", stages=8, micro_batches=20, times=times)
    assert (said.bubble, said.bubble_rate) == (3, None)
    assert formula("dualpipe", stages=8, micro_batches=20, times=Times(overlapped=3)).bubble_rate == 6 / 66
    assert formula("gpipe", stages=8, micro_batches=20, times=times).bubble_rate == 7 / 27


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("name", ["dualpipe", "dualpipe-v"])
def test_pairs_of_the_dualpipes(name, p):
    m = 4 * p
    for w in (0.5, 1.0):
        for pair in (1 + w, 1.5 + w, 2 + w):
            times = Times(1, 1, w, overlapped=pair)
            run = simulate(schedule(name, stages=p, micro_batches=m), times)
            idle = max(run.makespan - run.busy(r) for r in range(p))
            assert idle == pytest.approx(formula(name, stages=p, micro_batches=m, times=times).bubble)


def test_two_ways_hold_each_weight_twice():
    # arXiv 2412.19437, table 2; arXiv 2107.06925, table 2.
    names = ("dualpipe", "chimera", "dualpipe-v", "1f1b", "pipedream-2bw")
    found = [formula(name, stages=4, micro_batches=8, times=Times()).weight_copies for name in names]
    held = [Counter(chain(*schedule(name, 4, 8).placement)) for name in names]
    assert found == [2, 2, 1, 1, 1] == [max(stages.values()) for stages in held]


def test_interleaving_costs_memory():
    # arXiv 2205.05198: the first rank keeps 1 + (p-1)/(pv) as much.
    said = formula("interleaved-1f1b", stages=8, micro_batches=32, times=Times(), chunks=4)
    assert said.memory[0] == 8 * (1 + 7 / (8 * 4))


@pytest.mark.parametrize(("name", "times_1f1b"), [("1f1b", 1), ("zb-h1", 1 / 3), ("v-half", 1 / 2), ("v-min", 2 / 3)])
def test_bubbles_as_shares_of_the_time_of_1f1b(name, times_1f1b):
    said = formula(name, stages=8, micro_batches=32, times=Times(2, 2, 2))
    assert said.share_of_1f1b == pytest.approx(7 / 39 * times_1f1b, rel=1e-14)  # arXiv 2405.15362
    assert (said.share_of_1f1b < said.bubble_rate) == (name != "1f1b")


def test_what_is_said_of_equal_times_only():
    assert formula("zb-v", stages=4, micro_batches=8, times=Times()).bubble == 0
    other = formula("zb-v", stages=4, micro_batches=8, times=Times(1, 2, 1))
    assert other.bubble is other.share_of_1f1b is None
    assert formula("pipedream", stages=4, micro_batches=8, times=Times()).bubble_rate is None


@pytest.mark.parametrize("wrong", [{"stages": 0}, {"micro_batches": 0}, {"chunks": 0}])
def test_numbers_that_no_schedule_has(wrong):
    with pytest.raises(ArgumentError, match=f"{next(iter(wrong))}=0; needs at least 1"):
        formula("interleaved-1f1b", **({"stages": 4, "micro_batches": 8, "times": Times()} | wrong))
    assert not formula("dualpipe", stages=5, micro_batches=12, times=Times()).filled


def test_what_there_is_no_formula_for():
    with pytest.raises(UnknownNameError, match="'gpipe'"):
        formula("gpip", stages=4, micro_batches=8, times=Times())
    with pytest.raises(UnknownNameError, match=r"see simdist\.parallel\.pipeline\.formulas\.bpipe_kept"):
        formula("bpipe", stages=4, micro_batches=8)
    with pytest.raises(UnknownNameError, match="no paper has formulas for ZB-2p"):
        formula("ZB-2p", stages=4, micro_batches=8, times=Times())
    with pytest.raises(ArgumentError, match="differ from stage to stage"):
        formula("gpipe", stages=2, micro_batches=8, times=Times([1, 2]))


@pytest.mark.parametrize(("other", "name"), [("dapple", "1f1b"), ("pipedream-flush", "1f1b"), ("zb1p", "zb-h1")])
def test_names_of_other_papers(other, name):
    given = {"stages": 8, "micro_batches": 20, "times": Times(1.0, 1.0, 1.0)}
    assert formula(other, **given) == formula(name, **given)
    assert has_formula(other)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 8, 16])
def test_in_pairs_ranks_of_1f1b_keep_half_of_what_both_keep_and_one_more(p):
    found = simulate(schedule("1f1b", stages=p, micro_batches=3 * p), Times())
    kept = [dict(found.memory(rank)) for rank in range(p)]  # a level by its time
    times = sorted(set(chain(*kept)))

    def at(rank, time):
        return kept[rank][max(t for t in kept[rank] if t <= time)]

    together = max(at(r, time) + at(p - 1 - r, time) for r in range(p) for time in times)
    assert together == p + 1
    assert bpipe_kept(p) == together // 2 + 1
    assert bpipe_kept(8) == 5  # where the first rank of 1F1B keeps 8
    with pytest.raises(ArgumentError, match="stages is 0; needs at least 1"):
        bpipe_kept(0)


@pytest.mark.parametrize("v", [8, 9, 16])
def test_chimera_of_more_pipelines_than_ranks_is_not_filled(v):
    assert not formula("chimera", stages=4, micro_batches=4, chunks=v).filled
