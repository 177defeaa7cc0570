"""Schedules by name."""

from copy import deepcopy
from dataclasses import replace

import pytest

from simdist.errors import ArgumentError, ScheduleError, UnknownNameError
from simdist.parallel.pipeline import Forward, Schedule, Times, named, paper, schedule, schedules
from simdist.parallel.pipeline.formulas import formula
from simdist.parallel.pipeline.schedules import options, registry
from simdist.training import Config


def test_all_are_there():
    assert schedules() == [
        "naive", "gpipe", "breadth-first", "1f1b", "eager-1f1b", "interleaved-1f1b", "pipedream",
        "pipedream-vertical-sync", "pipedream-2bw", "zb-h1", "zb-h2", "zb-v", "zb-auto", "v-half", "v-min",
        "chimera", "bitpipe", "hanayo", "gems", "dualpipe", "dualpipe-v",
    ]  # fmt: skip


def test_options():
    assert options("interleaved-1f1b") == ["chunks"]
    assert options("gpipe") == []
    assert schedule("breadth-first", stages=2, micro_batches=2, chunks=3).num_stages == 6


def test_the_names_of_other_papers():
    names = {"dapple": "1f1b", "pipedream-flush": "1f1b", "1f1b-i": "interleaved-1f1b", "zb1p": "zb-h1"}
    names |= {"DFS": "interleaved-1f1b", "depth first": "interleaved-1f1b", "BFS": "breadth-first"}  # Llama 3's report
    names |= {"LoopedBFS": "breadth-first", "ZBVZeroBubble": "zb-v"}  # PyTorch
    names |= {"FThenB": "gpipe", "VPP": "interleaved-1f1b"}  # PaddlePaddle
    names |= {"1F1B-Int": "interleaved-1f1b", "2BW": "pipedream-2bw"}
    for other, name in {**names, "ZB2P": "zb-auto", "V-ZB": "zb-v", "ZBV": "zb-v", "DualPipeV": "dualpipe-v"}.items():
        assert schedule(other, stages=4, micro_batches=8) == schedule(name, stages=4, micro_batches=8)
        assert options(other) == options(name)


def test_ones_own_has_no_papers_formula_whatever_it_is_made_of(monkeypatch):
    monkeypatch.setattr(registry, "_MAKERS", deepcopy(registry._MAKERS))

    @named("mine")
    def mine(stages, micro_batches):
        return replace(schedule("1f1b", stages, micro_batches), rows=schedule("gpipe", stages, micro_batches).rows)

    named("other")(lambda stages, micro_batches: replace(mine(stages, micro_batches), name="any"))
    assert [schedule(name, 4, 8).name for name in ("mine", "Mine", "other", "1F1B")] == ["mine", "mine", "any", "1f1b"]
    assert paper(schedule("mine", 4, 8), Times()) is None


def test_ones_own_may_take_an_option_that_is_false_or_zero(monkeypatch):
    monkeypatch.setattr(registry, "_MAKERS", deepcopy(registry._MAKERS))

    @named("mine")
    def mine(stages, micro_batches, in_halves=True, lag=1):
        return schedule("zb-h1" if in_halves else ("gpipe", "1f1b")[lag], stages, micro_batches)

    assert schedule("mine", 4, 8, in_halves=False).rows == schedule("1f1b", 4, 8).rows
    assert schedule("mine", 4, 8, in_halves=False, lag=0).rows == schedule("gpipe", 4, 8).rows


def test_ones_own_is_validated_with_the_settings_of_a_run_or_a_plan(monkeypatch):
    monkeypatch.setattr(registry, "_MAKERS", deepcopy(registry._MAKERS))
    named("halves")(lambda stages, micro_batches: Schedule("halves", [[*map(Forward, range(micro_batches))]] * stages))
    with pytest.raises(ScheduleError, match="halves: micro-batch 0 needs F0 and B0"):
        schedule("halves", 2, 2)
    with pytest.raises(ScheduleError, match="halves: micro-batch 0 needs F0 and B0"):
        Config(model="gpt", pp=2, schedule="halves", micro_batches=2)


def test_the_same_every_time():
    for name in schedules():
        assert schedule(name, stages=4, micro_batches=9) == schedule(name, stages=4, micro_batches=9)


@pytest.mark.parametrize(
    ("name", "numbers", "error", "fault"),
    [
        (
            "zbh3",
            {},
            UnknownNameError,
            "did you mean 'zb-h2'.*There are: 1f1b, bitpipe, breadth-first, chimera",
        ),
        ("TeraPipe", {}, UnknownNameError, "no schedule by name: see simdist.parallel.pipeline.terapipe_s"),
        ("gpipe", {"chunks": 2}, UnknownNameError, "unknown option of gpipe 'chunks'"),
        ("gpipe", {"stages": 0}, ArgumentError, "gpipe with stages=0; needs at least 1"),
        ("gpipe", {"micro_batches": -1}, ArgumentError, "micro_batches=-1"),
        ("1f1b", {"stages": 10**11}, ArgumentError, "800,000,000,000 forwards; needs at most 16,777,216"),
        ("interleaved-1f1b", {"chunks": 10**9}, ArgumentError, "32,000,000,000 forwards; needs at most 16,777,216"),
        ("breadth-first", {"chunks": 0}, ArgumentError, "chunks=0"),
        ("chimera", {"stages": 3}, ArgumentError, "both directions on 3 stages: needs an even number"),
        ("dualpipe", {"stages": 5}, ArgumentError, "both directions on 5 stages: needs an even number"),
    ],
)
def test_what_there_is_not(name, numbers, error, fault):
    with pytest.raises(error, match=fault):
        schedule(name, **{"stages": 4, "micro_batches": 8} | numbers)


def test_rows():
    def rows(name, p, m):
        return str(schedule(name, stages=p, micro_batches=m)).split("\n")

    assert rows("naive", 1, 2) == ["F0 B0 F1 B1"]
    assert rows("gpipe", 1, 3) == ["F0 F1 F2 B2 B1 B0"]
    assert " ".join(rows("1f1b", 3, 4)[0].split()) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert " ".join(rows("eager-1f1b", 2, 4)[0].split()) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert " ".join(rows("breadth-first", 2, 2)[1].split()) == "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1"


def test_megatrons_order():
    # arXiv 2104.04473, figure 4, below: 4 devices, 8 micro-batches, 2 chunks; device 1.
    first = str(schedule("interleaved-1f1b", stages=4, micro_batches=8)).split("\n")[0].split()
    forwards = [word for word in first if "F" in word]
    assert forwards == [f"{4 * chunk}F{i}" for half in (0, 4) for chunk in (0, 1) for i in range(half, half + 4)]
    assert " ".join(first[:14]) == "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1"


def test_where_stages_do_not_divide_micro_batches_the_last_round_is_not_full():
    one = schedule("interleaved-1f1b", stages=4, micro_batches=6)
    full = schedule("interleaved-1f1b", stages=4, micro_batches=8)
    assert [action for action in full.rows[0] if action.micro_batch < 6] == list(one.rows[0])


def test_a_schedule_of_ones_own_is_data():
    assert isinstance(schedule("dualpipe", stages=2, micro_batches=1), Schedule)


def test_what_makes_one_has_to_return_one(monkeypatch):
    monkeypatch.setitem(registry._MAKERS, "mine", lambda stages, micro_batches: [[Forward(0)]] * stages)
    with pytest.raises(ArgumentError, match="what makes mine returns a list; needs a Schedule"):
        schedule("mine", stages=2, micro_batches=1)


@pytest.mark.parametrize(
    ("ranks", "num", "of"),
    [(1, 4, "1 rank and 4 micro-batches"), (2, 3, "2 ranks and 3 micro-batches"), (3, 1, "3 ranks and 1 micro-batch")],
)
def test_it_has_to_be_for_what_was_asked_for(ranks, num, of, monkeypatch):
    made = schedule("gpipe", stages=ranks, micro_batches=num)
    monkeypatch.setitem(registry._MAKERS, "mine", lambda stages, micro_batches: made)
    fault = f"mine is a schedule of {of}; 2 stages and 4 micro-batches are asked for"
    with pytest.raises(ArgumentError, match=fault):
        schedule("mine", stages=2, micro_batches=4)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (4, 2), (4, 8), (6, 7)])
def test_all_are_for_what_was_asked_for(stages, micro_batches):
    for name in schedules():
        made = schedule(name, stages=stages, micro_batches=micro_batches)
        assert (made.num_ranks, made.num_micro_batches) == (stages, micro_batches)


@pytest.mark.parametrize(
    ("name", "small"), [("ZB-H1", "zb-h1"), ("1F1B", "1f1b"), ("ZB-1P", "zb-h1"), ("GPipe", "gpipe")]
)
def test_names_may_be_in_capitals(name, small):
    assert schedule(name, 4, 8) == schedule(small, 4, 8)
    assert formula(name, stages=4, micro_batches=8, times=Times()) == formula(
        small, stages=4, micro_batches=8, times=Times()
    )
