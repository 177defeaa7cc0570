"""The validator: it passes what can be carried out, and shows where the rest goes wrong."""

import pytest
from pipeline_training import BOTH_WAYS

from simdist.errors import ArgumentError, ScheduleError, UnknownNameError
from simdist.parallel.pipeline import (
    Backward,
    Forward,
    Memory,
    Schedule,
    parse,
    schedule,
    schedules,
    validate,
)

STAGES = (1, 2, 3, 4, 8)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("name", schedules())
def test_every_schedule_on_every_shape(name):
    for p in STAGES:
        for m in range(1, 3 * p + 1):
            if name in BOTH_WAYS and p % 2:
                with pytest.raises(ArgumentError, match="needs an even number"):
                    schedule(name, stages=p, micro_batches=m)
                continue
            one = schedule(name, stages=p, micro_batches=m)
            report = validate(one)
            assert (one.num_ranks, one.num_micro_batches, one.name) == (p, m, name)
            assert max(report.in_flight) <= m


def test_what_it_reports():
    report = validate(schedule("zb-h1", stages=4, micro_batches=8), Memory(10, 3))
    assert report.in_flight == (4, 4, 4, 4)
    assert report.memory == (40, 33, 26, 19)
    assert report.weight_versions == ((1,),) * 4
    assert report.messages == (8, 16, 16, 8)
    assert not report.blocking


WRONG = [
    ("F0 F1 B0 B1\nF0 B0 B1", "micro-batch 1 needs F1 and B1, or F1, I1 and W1 on stage 1; there is B1", [">B1<"]),
    ("F0 F1 B0\nF0 B0 F1 B1", "micro-batch 1 needs .* on stage 0; there is F1", [">F1<"]),
    ("F0 I0 F1 B1", "micro-batch 0 needs .*; there is F0, I0", [">F0<", ">I0<"]),
    ("F0 B0 I0 W0", "micro-batch 0 needs .*; there is F0, B0, I0, W0", [">F0<", ">B0<", ">I0<", ">W0<"]),
    ("F0 F1 B0 B1\nF0 B0\n", "micro-batch 1 needs .* on stage 1; there is none of these", ["F0 B0 ><"]),
    ("F0 F0 B0", "rank 0 does F0 of stage 0 twice", [">F0<"]),
    ("B0 F0\nF0 B0", "rank 0 does B0 of stage 0 before F0, which it needs", [">B0<"]),
    ("F0&B0", "rank 0 does B0 of stage 0 before F0, which it needs", [">F0&B0<"]),
    ("F0 W0 I0", "rank 0 does W0 of stage 0 before I0", [">W0<"]),
    ("0F0 0B0\n1F0 1B0\n1F0 1B0", "F0 of stage 1 has two owners, rank 1 and rank 2", [">1F0<", ">1F0<"]),
    ("0F0 0B0\n1F0\n1B0", "micro-batch 0 has two owners on stage 1: rank 1 does F0, rank 2 B0", [">1F0<", ">1B0<"]),
    ("0F0 0B0\n2F0 2B0", "no rank has stage 1 of 3", []),
    (
        "F0 B0 F1 B1\nF1 B1 F0 B0",
        "deadlock with buffered sends: rank 0 before B0 waits for the gradient of micro-batch 0 for stage 0 "
        "from rank 1; rank 1 before F1 waits for the activation of micro-batch 1 for stage 1 from rank 0",
        [">B0<", ">F1<"],
    ),
    ("0F0 2F0 0B0 2B0\n1F0 1B0", "deadlock with buffered sends", [">0B0<", ">1B0<"]),
    (  # rank 0 waits, too, but those who wait for each other are the others
        "F0 F1 B0 B1\nF0 B0 F1 B1\nF1 B1 F0 B0",
        "deadlock with buffered sends: rank 1 before B0 waits for the gradient of micro-batch 0 for stage 1 "
        "from rank 2; rank 2 before F1 waits for the activation of micro-batch 1 for stage 2 from rank 1",
        [">B0<", ">F1<"],
    ),
]


@pytest.mark.parametrize(("text", "fault", "marks"), WRONG)
def test_a_wrong_schedule_is_refused_with_the_place(text, fault, marks):
    with pytest.raises(ScheduleError, match=f"schedule: {fault}") as caught:
        validate(parse(text))
    lines = str(caught.value).split("\n", 1)[1]
    for mark in set(marks):
        assert lines.count(mark) == marks.count(mark), lines
    assert lines.count(">") == len(marks)
    assert len(lines.splitlines()) == len(parse(text).rows)


def test_what_text_cannot_say():
    with pytest.raises(ScheduleError, match="F0 on rank 0 is of chunk 1; the rank has 1 chunk, from 0"):
        validate(Schedule("mine", [[Forward(0, 1), Backward(0)]]))
    with pytest.raises(ScheduleError, match=r"F2 on rank 0: there are 2 micro-batches(.|\n)*>F2<"):
        validate(Schedule("mine", [[Forward(2)]], num_micro_batches=2))


@pytest.mark.parametrize("name", schedules())
def test_one_action_less_or_in_the_wrong_row_is_always_found(name):
    one = schedule(name, stages=4, micro_batches=4)
    for rank, row in enumerate(one.rows):
        for at in range(0, len(row), 5):
            without = [list(other) for other in one.rows]
            action = without[rank].pop(at)
            with pytest.raises(ScheduleError):
                validate(Schedule("less", without, one.placement, 4, one.weights))
            without[(rank + 1) % 4].append(action)
            with pytest.raises(ScheduleError):
                validate(Schedule("moved", without, one.placement, 4, one.weights))


def test_sends_that_wait_for_their_receives():
    assert validate(schedule("gpipe", stages=4, micro_batches=8), sends="blocking").blocking
    # 1F1B has rank 0 sending F1 down while rank 1 sends B0 up: so Megatron-LM sends and receives in one call.
    one = schedule("1f1b", stages=2, micro_batches=2)
    assert not validate(one).blocking
    with pytest.raises(ScheduleError, match="deadlock with blocking sends: rank 0 after F1 waits for rank 1 to take "):
        validate(one, sends="blocking")
    assert validate(schedule("1f1b", stages=2, micro_batches=1), sends="blocking").blocking
    with pytest.raises(UnknownNameError, match="did you mean 'blocking'"):
        validate(one, sends="bloking")
