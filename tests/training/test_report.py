import pytest

import simdist as sd
from simdist.collectives import cost
from simdist.trace import Span, Trace
from simdist.training import Config, Trainer, report
from simdist.training.traffic import Call, transfer_seconds


def program(comm, settings):
    trainer = Trainer(comm, Config(**settings))
    line = [line for line in trainer.run() if line][-1]
    trace = trainer.trace()
    if trace is None:
        return None
    told = report(trainer, line, trace, comm.cluster)
    return [tuple(row) for row in told.rows], str(told), trainer.method.gradient.nbytes


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "text").write_bytes(bytes(range(256)) * 40)
    return {"data": str(tmp_path / "text"), "steps": 3, "global_batch_size": 8, "hidden_width": 16, "algorithm": "ring"}


def test_measured_beside_predicted_beside_formula(spmd, settings):
    rows, text, num_bytes = spmd(program, 4, settings)[0]
    sent = cost("all_reduce", "ring", ranks=4, num_bytes=num_bytes, itemsize=4).sent_bytes
    assert rows[0][1:3] == (f"{sent:,}", f"{sent:,}")
    assert rows[0][3] == f"{2 * num_bytes * 3 / 4:,.0f}"
    assert rows[1][1:3] == ("6", "6")
    assert "4 ranks, ddp: all_reduce ring" in text
    assert f"{sent:,}" in text


def test_in_virtual_time_the_prediction_is_what_happens(settings):
    rows, _, _ = sd.run(program, 4, args=(settings,)).results[0]
    assert rows[2][1] == rows[2][2]


def test_one_rank_sends_nothing(spmd, settings):
    rows, text, _ = spmd(program, 1, settings)[0]
    assert rows and all(row[0].startswith("peak bytes of ") for row in rows)
    assert "1 rank\n" in text


def test_auto_says_what_it_picked(spmd, settings):
    _, text, _ = spmd(program, 2, settings | {"algorithm": "auto"})[0]
    assert "all_reduce auto" not in text
    assert "2 ranks, ddp: all_reduce " in text


def test_waiting_for_a_late_rank_is_not_the_reduction():
    early = [Span(0, "main", "all_reduce ring", start, start + 5, 80) for start in (0.0, 10.0)]
    late = [Span(1, "main", "all_reduce ring", start, start + 1, 80) for start in (3.0, 13.0)]
    other = [Span(rank, "main", "all_reduce ring", 4.0, 14.0, 16) for rank in (0, 1)]
    trace = Trace([*early, *late, *other], 2)
    assert transfer_seconds(trace, Call("all_reduce", "ring", 80, (0, 1), "")) == 2
    assert transfer_seconds(trace, Call("all_reduce", "tree", 80, (0, 1), "")) is None


def test_times_are_of_the_steps_since_it_went_on(settings, tmp_path):
    def gone_on(comm):
        first = Trainer(comm, Config(**settings | {"steps": 2, "checkpoint_every": 2}), tmp_path / "checkpoints")
        list(first.run())
        second = Trainer(comm, Config(**settings | {"steps": 5}))
        second.resume(tmp_path / "checkpoints")
        line = [line for line in second.run() if line][-1]
        trace = second.trace()
        return trace and str(report(second, line, trace, comm.cluster)), second.gauge.total.seconds

    told, seconds = sd.run(gone_on, 2).results[0]
    assert f"5 steps of 8 windows, those since step 2 in {seconds * 1e3:.3g} ms: " in told


def test_a_loss_that_was_not_of_the_last_step_says_of_which(settings):
    def stopped(comm):
        trainer = Trainer(comm, Config(**settings | {"steps": 9, "interval": 4}))
        lines = [next(run) for run in [trainer.run()] for _ in range(6)]
        trace = trainer.trace()
        return trace and [
            str(report(trainer, line, trace, comm.cluster)) for line in (lines[3], lines[3]._replace(step=6))
        ]

    earlier, last = sd.run(stopped, 2).results[0]
    assert "validation loss after step 4: " in earlier
    assert "validation loss after" not in last


def test_without_a_record_nobody_knows_what_they_did(settings):
    _, text, _ = sd.run(program, 2, args=(settings | {"trace_steps": 0},)).results[0]
    assert "2 ranks, ddp\n" in text
