"""Messages follow from actions."""

from collections import Counter

import pytest
from pipeline_training import BOTH_WAYS

from simdist.parallel.pipeline import Message, Value, parse, schedule, schedules, steps
from simdist.parallel.pipeline.schedule import expected


def test_two_ranks():
    rows = steps(parse("F0 B0\nF0 B0"))
    there, back = Message(Value("activation", 1, 0), 0, 1), Message(Value("gradient", 0, 0), 1, 0)
    assert [(step.receives, step.sends) for step in rows[0]] == [((), (there,)), ((back,), ())]
    assert [(step.receives, step.sends) for step in rows[1]] == [((there,), ()), ((), (back,))]


def test_where_a_v_turns_nothing_is_sent():
    rows = steps(parse("0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0"))
    assert [len(step.sends) for step in rows[0]] == [1, 0, 1, 0]  # to stage 1; the loss is here; to stage 2
    assert [len(step.sends) for step in rows[1]] == [0, 1, 0, 1]


def test_a_pair_has_the_messages_of_both():
    (step,) = (s for s in steps(parse("F0 F1 B0 B1\nF0 F1&B0 B1"))[1] if len(s.action.parts) == 2)
    assert [m.value.what for m in step.receives] == ["activation"]
    assert [m.value.what for m in step.sends] == ["gradient"]


@pytest.mark.parametrize("name", schedules())
def test_every_boundary_is_crossed_once_each_way(name):
    one = schedule(name, stages=4, micro_batches=6)
    rows = steps(one)
    sent = Counter(m for row in rows for step in row for m in step.sends)
    assert sent == Counter(m for row in rows for step in row for m in step.receives)
    assert set(sent.values()) == {1}
    holder = {(stage, rank) for rank, stages in enumerate(one.placement) for stage in stages}
    turns = sum({(s, r), (s + 1, r)} <= holder for s in range(one.num_stages) for r in range(4))
    if name in BOTH_WAYS:  # ranks also have stages that follow each other, but of other copies, except where a V turns
        turns = int(name == "bitpipe")
    assert len(sent) == 2 * 6 * (one.num_stages - 1 - turns)
    for m in sent:
        assert m.src != m.dst
        assert (m.value.stage, m.dst) in holder
        assert (m.value.stage + (-1 if m.value.what == "activation" else 1), m.src) in holder


def test_dualpipe_runs_both_ways():
    sent = [m for row in steps(schedule("dualpipe", stages=4, micro_batches=8)) for step in row for m in step.sends]
    down = {m.value.micro_batch for m in sent if m.value.what == "activation" and m.dst == m.src + 1}
    up = {m.value.micro_batch for m in sent if m.value.what == "activation" and m.dst == m.src - 1}
    assert (down, up) == ({0, 1, 2, 3}, {4, 5, 6, 7})


def test_a_schedule_finds_its_messages_once():
    one = parse("F0 B0\nF0 B0")
    assert one.steps is one.steps
    assert one.steps == steps(one)
    assert [(step.needs, step.gives) for step in one.steps[1]] == [
        ((Value("activation", 1, 0),), (Value("gradient", 1, 0),)),
        ((Value("gradient", 1, 0),), (Value("gradient", 0, 0),)),
    ]


def test_receives_are_posted_one_place_ahead_each_once():
    row = parse("F0 F1 B0 B1\nF0 B0 F1 B1").steps[0]
    assert [expected(row, place) for place in range(4)] == [row[:2], row[2:3], row[3:], []]
    assert expected([], 0) == []
