"""What a run says of its pipeline: the figures that are exact are the same measured and predicted."""

import re
from math import prod

import pytest

import simdist as sd
from simdist.cluster import Link, preset
from simdist.nn import Shape
from simdist.nn.formulas import num_parameters
from simdist.parallel.pipeline import executions
from simdist.training import Config, Trainer, report
from simdist.training.pipeline_report import predicted_pipeline, taken_by_all

GPT = {"model": "gpt", "layers": 5, "width": 16, "heads": 4, "context_bytes": 12, "dropout": 0.1, "interval": 2}
GPT |= {"precision": "float64", "global_batch_size": 10, "steps": 3, "validation_windows": 10, "warmup_steps": 2}
EXACT = ("bytes sent", "messages", "activations", "weight versions")


@pytest.fixture
def settings(text):
    return GPT | {"data": text, "micro_batches": 4}


def told(comm, settings):
    trainer = Trainer(comm, Config(**settings))
    line = [line for line in trainer.run() if line][-1]
    trace, took = trainer.trace(), taken_by_all(trainer)
    if trace is None:
        assert took == []
        return None
    found = report(trainer, line, trace, comm.cluster, took=took)
    return found.summary[0], [tuple(row) for row in found.rows], str(found)


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(
    "mesh",
    [
        {"pp": 4},
        {"pp": 2, "schedule": "interleaved-1f1b", "chunks": 3},
        {"pp": 2, "dp": 2, "zero": 1, "schedule": "zb-h1", "precision": "bf16"},
        {"pp": 2, "tp": 2, "sequence_parallel": True, "schedule": "zb-v", "recompute": "selective"},
        {"pp": 2, "sp": 2, "ulysses": True, "schedule": "gpipe", "recompute": "full"},
        {"pp": 4, "schedule": "pipedream", "optimizer": "sgd"},
        {"pp": 2, "dp": 2, "schedule": "pipedream-2bw"},
    ],
    ids=str,
)
def test_measured_is_predicted(spmd, settings, mesh):
    sizes = {axis: mesh.get(axis, 1) for axis in ("pp", "dp", "tp", "sp")}
    p = prod(sizes.values())
    summary, rows, text = spmd(told, p, settings | mesh)[0]
    tied = not mesh.get("schedule", "").startswith("pipedream")
    assert summary.startswith(f"gpt, {num_parameters(Shape(5, 16, 4, 12, tied=tied)):,} parameters")
    assert f"pp {sizes['pp']}" in summary and mesh.get("schedule", "1f1b") in summary
    exact = [row for row in rows if any(word in row[0] for word in EXACT)]
    assert len(exact) == 3 + 4 * sizes["pp"]
    for row in exact:
        assert row[1] == row[2] != "", text
    [weights] = [[int(x.replace(",", "")) for x in row[1:3]] for row in rows if "peak bytes of parameters" in row[0]]
    assert weights[1] <= weights[0] < weights[1] + 64  # of memory that is shared there is a whole number of lines
    bubbles = [row for row in rows if "bubble" in row[0]]
    assert len(bubbles) == 2 and all(row[1].endswith("%") and row[2].endswith("%") for row in bubbles)
    assert "mean times of that step's own actions" in text


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    "mesh",
    [
        {"pp": 2, "tp": 2, "schedule": "zb-h1"},  # whose first step finds out what passes between stages
        {"pp": 3, "dp": 2},
        {"pp": 2, "ep": 2, "experts": 4},
        {"pp": 4, "schedule": "pipedream", "optimizer": "sgd"},
        {"pp": 2, "sp": 2, "ulysses": True, "schedule": "v-half"},
        {"pp": 2, "sp": 2, "schedule": "gpipe"},  # keys and values go round while no collective is at work
    ],
    ids=str,
)
def test_over_a_network_too(settings, mesh):
    p = prod(mesh.get(axis, 1) for axis in ("pp", "dp", "tp", "sp", "ep"))
    _, rows, text = sd.run(told, p, args=(settings | mesh,), cluster=preset("h100")).results[0]
    told_of = EXACT[:2] if "ep" in mesh else (*EXACT, "peak bytes of communication")  # experts hold about as much
    exact = [row for row in rows if any(word in row[0] for word in told_of)]
    for row in exact:
        assert row[1] == row[2] != "", text
    by = {row[0]: row[1:] for row in rows}
    for what, rel in (("bytes sent a step, rank 0", 0.01), ("collectives of a step, once all ranks are there", 0.15)):
        _, predicted, formula = by[what]
        assert number(formula) == pytest.approx(number(predicted), rel=rel), text
    measured, predicted, _ = by["pipeline: makespan"]
    assert measured.endswith(" ms") and number(measured) == pytest.approx(number(predicted), rel=0.1)
    assert all(cell.endswith("%") for cell in by["pipeline: utilisation, rank 0"] if cell)
    assert by["pipeline: activations, bytes, rank 0"] == by["peak bytes of activations, rank 0"]
    versions = number(by["pipeline: weight versions, rank 0"][2])
    parameters, one = (number(by[f"peak bytes of {what}, rank 0"][2]) for what in ("parameters", "gradients"))
    assert parameters == versions * one


def number(cell):
    return float(re.sub("[,%]| ms", "", cell))


@pytest.mark.slow
def test_what_ranks_share_and_use_again_is_not_counted_for_each_micro_batch(settings):
    """As an all-reduce in shared memory leaves it behind."""
    wide = {"width": 64, "context_bytes": 64, "global_batch_size": 32, "pp": 2, "tp": 2}
    _, rows, text = sd.run(told, 4, args=(settings | wide,)).results[0]
    found = [row[1:3] for row in rows if "activations, bytes" in row[0]]
    assert len(found) == 2
    for measured, predicted in found:
        assert number(measured) == pytest.approx(number(predicted), rel=1e-3), text


@pytest.mark.parametrize(("schedule", "said"), [("pipedream", True), ("1f1b", False)])
def test_updates_between_actions_are_told_of(settings, schedule, said):
    text = sd.run(told, 2, args=(settings | {"pp": 2, "schedule": schedule},)).results[0][2]
    assert ("stages update their weights between actions" in text) == said


def test_where_no_paper_says_anything_there_is_no_formula(settings):
    _, rows, text = sd.run(told, 2, args=(settings | {"pp": 2, "schedule": "zb-auto"},)).results[0]
    by = {row[0]: row for row in rows}
    for what in ("activations", "communication"):
        _, measured, predicted, formula = by[f"peak bytes of {what}, rank 0"]
        assert measured == predicted != "" == formula, text


def test_without_a_record_there_are_no_times(spmd, settings):
    _, rows, text = spmd(told, 2, settings | {"pp": 2, "trace_steps": 0})[0]
    assert not [row for row in rows if "bubble" in row[0]]
    assert "peak bytes of activations" in text


def test_the_middle_step_as_it_went_and_as_it_is_predicted(spmd, settings):
    def program(comm):
        trainer = Trainer(comm, Config(**settings | {"pp": 2, "schedule": "zb-h1"}))
        for _ in trainer.run():
            pass
        trace = trainer.trace()
        if trace is None:
            return None
        prediction = predicted_pipeline(trainer.method, trainer.config)
        went = prediction.measured_and_simulated(trace, preset("this-machine"))
        assert all(run.schedule.name == "zb-h1" for run in went)
        return [run.makespan for run in went], [run.times.longest_hop for run in went]

    (measured, predicted), (none, some) = spmd(program, 2)[0]
    assert none == 0 < some
    assert predicted > 0
    if not spmd.real:  # where actions take other times than their means, the means may well take longer
        assert predicted <= 1.001 * measured  # what is simulated has no other programs beside it


def test_of_steps_that_take_different_times_the_middle_one_is_told_of(settings):
    """Over a slow network, where the activations between stages are what takes time."""
    cluster = preset("h100").with_(jitter=0.5, inside=Link(0.0, 1e6))

    def program(comm):
        trainer = Trainer(comm, Config(**settings | {"pp": 2, "steps": 4}))
        list(trainer.run())
        trace = trainer.trace()
        if trace is None:
            return None
        prediction = predicted_pipeline(trainer.method, trainer.config)
        runs = executions(trainer.method.schedule, trace, (0, 1))
        return [run.makespan for run in runs], [
            run.makespan for run in prediction.measured_and_simulated(trace, cluster)
        ]

    steps, (measured, predicted) = sd.run(program, 2, cluster=cluster).results[0]
    assert len(set(steps)) == 4 and measured == sorted(steps)[1]
    assert predicted == pytest.approx(measured, rel=0.2)


def test_of_no_pipeline_there_is_nothing_to_say(spmd, settings):
    def program(comm):
        trainer = Trainer(comm, Config(**settings))
        assert predicted_pipeline(trainer.method, trainer.config) is None
        return taken_by_all(trainer)

    assert spmd(program, 2) == [[], []]


def test_over_slow_links_messages_wait_for_each_other_as_measured():
    """A message takes longer than an action, so the network cards, and not the stages, say how long a step takes."""
    slow = preset("h100").with_(name="slow", devices_per_node=1, nics_per_node=1, between=Link(5e-6, 1.25e9))
    large = {"width": 512, "context_bytes": 512, "global_batch_size": 8, "steps": 2, "validation_windows": 0}
    large |= {"model": "gpt", "layers": 8, "micro_batches": 8, "pp": 4, "device": "phantom", "precision": "bf16"}
    rows = sd.run(told, 4, args=(large,), cluster=slow).results[0][1]
    measured, predicted, _ = next(row[1:] for row in rows if row[0] == "pipeline: makespan")
    assert number(measured) == pytest.approx(number(predicted), rel=0.01)
