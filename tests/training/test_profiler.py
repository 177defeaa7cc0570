"""The profiler, on programs whose times and bytes are known because time is virtual."""

import numpy as np
import pytest

import simdist as sd
from simdist.training import Config, Trainer
from simdist.training.profiler import STEP, Profiler, Tally


def program(comm, keep_steps, steps=6):
    """Each step: a second of work, then two in which another stream is at work, which sends a message."""
    peer, x, y = 1 - comm.rank, np.zeros(comm.rank + 1), np.zeros(2)
    side = comm.stream("side")

    def talk():
        side.comm.compute(seconds=2)
        side.comm.sendrecv(x, peer, y, peer)

    comm.sendrecv(x, peer, y, peer)
    profiler, laps = Profiler(comm, keep_steps), []
    for step in range(steps):
        with profiler.step(step, targets=10):
            comm.compute(seconds=1)
            side.start(talk).wait()
        comm.sendrecv(x, peer, y, peer)  # between steps: no part of them
        if step % 2:
            laps.append(profiler.lap())
    return laps, profiler.total, profiler.total.communication_share


def test_laps_and_totals():
    for rank, (laps, total, share) in enumerate(sd.run(program, 2, args=(3,)).results):
        assert [(lap.steps, lap.messages, lap.sent_bytes) for lap in laps] == [(2, 2, 16 * (rank + 1))] * 3
        assert (total.steps, total.messages, total.sent_bytes) == (6, 6, 48 * (rank + 1))
        assert total.seconds == pytest.approx(18, abs=1e-3)
        assert share == pytest.approx(2 / 3, abs=1e-3)
        assert total.per_second(total.targets) == pytest.approx(60 / 18, abs=1e-3)


@pytest.mark.parametrize("compression", ["top-k", "8-bit", "power-sgd"])
def test_who_compresses_alone_communicates_with_nobody(compression, tmp_path):
    def compressed(comm):
        trainer = Trainer(comm, config)
        list(trainer.run())
        return trainer.profiler.total, trainer.trace().statistics()[0]

    (tmp_path / "text").write_bytes(bytes(range(256)) * 4)
    config = Config(data=str(tmp_path / "text"), steps=2, compress=compression, validation_windows=4)
    total, told = sd.run(compressed, 1).results[0]
    assert total.communication_s == 0
    assert told.computing_s > 0.9 * total.seconds


@pytest.mark.parametrize(("keep", "kept"), [(0, []), (1, ["5"]), (3, ["3", "4", "5"]), (9, list("012345"))])
def test_only_the_last_steps_stay_on_the_record(keep, kept):
    trace = sd.run(program, 2, args=(keep,)).trace
    mine = [span for span in trace if span.rank == 0]
    assert [span.detail for span in mine if span.name == STEP] == kept
    assert mine[0].start_s < 1, "what came before the first step stays"
    # One message in a step and one after it; the one after the last step stays even where no step does.
    counts = {name: sum(span.name == name for span in mine) for name in ("send", "recv", "compute")}
    messages = 1 + (2 * len(kept) or 1)
    assert counts == {"send": messages, "recv": messages, "compute": 2 * len(kept)}


@pytest.mark.parametrize(("steps", "first"), [(3, "broadcast"), (4, "step")])
def test_a_run_of_more_steps_than_are_kept_has_a_record_of_these_alone(steps, first, tmp_path):
    def trained(comm):
        comm.barrier()  # of a program around the run
        around = list(comm.recorder.rows)
        trainer = Trainer(comm, Config(data=str(tmp_path / "text"), steps=steps, trace_steps=3, validation_windows=4))
        list(trainer.run())
        trace = trainer.trace()
        return trace and [span.name for span in trace if span.rank == 0], comm.recorder.rows[: len(around)] == around

    (tmp_path / "text").write_bytes(bytes(range(256)) * 4)
    (names, around_is_kept), _ = sd.run(trained, 2).results
    assert first in names[0]
    assert names.count("step") == 3
    assert around_is_kept


def test_a_clock_that_stands_still_divides_nothing():
    assert Tally(steps=3).communication_share == 0
    assert Tally(steps=3).per_second(5) == 0


def pipelined(comm):
    """On rank 1: a message on its way for a second, and for two more beside an action of a pipeline."""
    profiler, x = Profiler(comm, 1), np.zeros(1)
    with profiler.step(0):
        if comm.rank:
            request = comm.irecv(x, 0)
            comm.barrier()
            with comm.span("F0", micro_batch=0):
                comm.compute(seconds=2)
            request.wait()
        else:
            comm.compute(seconds=1)
            comm.barrier()
            comm.compute(seconds=2)
            comm.send(x, 1)
    return profiler.total.seconds, profiler.total.communication_s


def test_what_is_moved_in_memory_that_ranks_share_is_communication():
    def program(comm):
        profiler = Profiler(comm, keep_steps=1)
        with profiler.step(0):
            comm.compute(seconds=1.0, name="forward")
            comm.compute(seconds=2.0, name="move")
        return profiler.total.communication_s

    assert sd.run(program, 1).results == [pytest.approx(2)]


def test_a_message_beside_an_action_of_a_pipeline_costs_no_time():
    seconds, communication_s = sd.run(pipelined, 2).results[1]
    assert (seconds, communication_s) == (pytest.approx(3, abs=1e-3), pytest.approx(1, abs=1e-3))


def test_what_moves_within_an_action_of_a_pipeline_is_communication():
    def program(comm):
        profiler = Profiler(comm, keep_steps=1)
        with profiler.step(0), comm.span("F0", micro_batch=0):
            comm.compute(seconds=2.0, name="forward")
            comm.compute(seconds=1.0, name="move")
        return profiler.total.communication_s

    assert sd.run(program, 1).results == [pytest.approx(1)]
