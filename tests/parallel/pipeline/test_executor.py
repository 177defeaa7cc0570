"""The executor in virtual time, and what it does when a stage fails."""

import time
from math import inf

import numpy as np
import pytest
from jobs import needs_mpi
from pipeline_training import BOTH_WAYS, EXACT, MODELS, SYNCHRONOUS, mesh_of, pipeline, trained, windows

import simdist as sd
from simdist.arrays import Ledger, phantom, recorded
from simdist.cluster import Cluster, Device, Link
from simdist.nn import Gelu, Model, Sequence, Shape, gpt, mlp
from simdist.parallel.pipeline import (
    PipeDream,
    Pipeline,
    Taken,
    Times,
    executed,
    executions,
    footprints,
    measured_times,
    modelled_costs,
    parse,
    predicted_taken,
    schedule,
    simulate,
    split,
    stage_times,
    taken,
    validate,
)

WIRE = Cluster("wire", Device("", 1e12, 1e12, 1e40), Link(0.3, inf), Link(0.3, inf), 1 << 20, eager_bytes=1 << 60)


def rehearse(comm, one, times):
    """A step on arrays without numbers; the actions take the times given."""
    m = one.num_micro_batches
    method = Pipeline(MODELS["gpt"](), mesh_of(comm, pp=comm.size), EXACT, 1, one, times=times, memory=phantom)
    for i in range(m):
        method.backward(phantom((2, 6), np.uint8), 1.0, last=i == m - 1)
    return method.executor.in_flight


@pytest.mark.slow(but=8)
@pytest.mark.parametrize("name", SYNCHRONOUS)
@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 5), (4, 3), (4, 12)])
def test_the_timeline_is_the_simulations(name, p, m):
    """Exactly: the executor adds up the same numbers as the simulator."""
    if name in BOTH_WAYS and p % 2:
        return
    one = schedule(name, stages=p, micro_batches=m)
    rng = np.random.default_rng(0)
    times = Times(*(rng.uniform(0.5, 2, one.num_stages).tolist() for _ in range(3)), communication=0.3)
    run = sd.run(rehearse, p, args=(one, times), cluster=WIRE)
    predicted, found = simulate(one, times), executed(one, run.trace)
    assert found.course.start == predicted.course.start
    assert found.course.end == predicted.course.end
    assert found.bubble_rate == predicted.bubble_rate
    assert run.results == list(validate(one).in_flight)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v", "dualpipe"])
def test_actions_that_take_no_time_are_found_too(name):
    """Of a stage that is an embedding alone there is no gradient of the input to compute."""
    one = schedule(name, stages=4, micro_batches=8)
    n = one.num_stages
    times = Times([1.0] * n, [0.0] + [1.0] * (n - 1), [1.0] * (n - 1) + [0.0], communication=0.3)
    run = sd.run(rehearse, 4, args=(one, times), cluster=WIRE)
    predicted, found = simulate(one, times), executed(one, run.trace)
    assert (found.course.start, found.course.end) == (predicted.course.start, predicted.course.end)


def test_pairs_may_take_less_than_their_parts():
    one, times = schedule("dualpipe", stages=4, micro_batches=8), Times(overlapped=2.5, communication=0.3)
    found = executed(one, sd.run(rehearse, 4, args=(one, times), cluster=WIRE).trace)
    assert found.course.end == simulate(one, times).course.end
    again = measured_times(one, found.course)
    assert again.overlapped == pytest.approx(2.5)
    assert again.backward_weight == pytest.approx([1.0] * 4)


def stream(comm, one, times):
    method = PipeDream(MODELS["mlp"](), mesh_of(comm, pp=comm.size), EXACT, 1, one, times=times, memory=phantom)
    method.train([phantom((2, 4), np.uint8)] * one.num_micro_batches, 1.0, 0.1)


@pytest.mark.parametrize("name", ["pipedream", "pipedream-vertical-sync", "pipedream-2bw"])
def test_the_timeline_of_pipelines_that_never_empty(name):
    one, times = schedule(name, stages=4, micro_batches=12), Times(communication=0.3)
    free = WIRE.with_(device=Device("", inf, inf, inf))  # updates lie between actions
    found = executed(one, sd.run(stream, 4, args=(one, times), cluster=free).trace)
    assert found.course.end == simulate(one, times).course.end


# A wire that bytes pass as if it were not there, and a device with arithmetic and memory of its own.
DEVICE = Device("device", 1e9, 1e9, 1e40)
BARE = Cluster("bare", DEVICE, Link(1e-4, inf), Link(1e-4, inf), 1 << 20, eager_bytes=1 << 60)


def modelled(comm, one, bounds):
    costs = [1.0] * 16
    method = Pipeline(MODELS["untied"](), mesh_of(comm, pp=comm.size), EXACT, 1, one, costs=costs, memory=phantom)
    assert method.share.bounds == bounds
    m = one.num_micro_batches
    for i in range(m):
        method.backward(phantom((2, 6), np.uint8), 1.0, last=i == m - 1)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v", "dualpipe"])
def test_by_the_device_model(name):
    one = schedule(name, stages=4, micro_batches=6)
    bounds = split([1.0] * 16, one.num_stages)
    times = stage_times(modelled_costs(MODELS["untied"](), 2, 6, DEVICE, np.float64), bounds, 1e-4)
    found = executed(one, sd.run(modelled, 4, args=(one, bounds), cluster=BARE).trace)
    predicted = simulate(one, times)
    for row, expected in zip(found.course.end, predicted.course.end, strict=True):
        np.testing.assert_allclose(row, expected, rtol=1e-9)
    assert found.bubble_rate == pytest.approx(predicted.bubble_rate, rel=1e-6)


# -- memory -----------------------------------------------------------------------------------------------


def remember(comm, name, m, shape):
    one = schedule(name, stages=comm.size, micro_batches=m)
    with recorded(ledger := Ledger(comm.clock)):
        costs = [1.0] * (shape.layers + 2)
        method = Pipeline(gpt(shape), mesh_of(comm, pp=comm.size), EXACT, 1, one, costs=costs)
        text = np.random.default_rng(1).integers(256, size=(m, 2, 9), dtype=np.uint8)
        for i in range(m):
            method.backward(text[i], 1.0, last=i == m - 1)
    return taken(method, ledger)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "interleaved-1f1b"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_memory_is_as_predicted(spmd, name, recompute):
    shape = Shape(6, 16, 2, 8, tied=False, recompute=recompute)
    one = schedule(name, stages=4, micro_batches=8)
    stages = footprints(gpt(shape), split([1.0] * 8, one.num_stages), 2, 9, np.dtype(np.float64))
    took = [Taken(*mine) for mine in spmd(remember, 4, name, 8, shape)]
    for mine, promised in zip(took, predicted_taken(one, stages), strict=True):
        assert mine.in_flight == promised.in_flight
        assert mine.sent_bytes == promised.sent_bytes
        assert mine.activation_bytes == promised.activation_bytes


def test_what_waits_for_weights_gradients_is_less():
    long = Shape(layers=6, width=16, heads=4, context=64)
    stages = footprints(gpt(long), split([1.0] * 8, 4), 2, 65, np.dtype(np.float64))
    for s, stage in enumerate(stages):
        levels = stage.levels
        assert stage.text_bytes == (0 if s else 2 * 65)
        assert levels["B"].after == levels["W"].after == 0
        assert levels["I"].after < levels["F"].after


# -- failing ----------------------------------------------------------------------------------------------


class _Broken(Gelu):
    """Fails on its third micro-batch."""

    def __init__(self):
        self.count = 0

    def forward(self, x, noise=None):
        self.count += 1
        if self.count > 3:  # the first was for the shapes
            raise FloatingPointError(f"injected at {time.time()}")
        return super().forward(x, noise)


def break_stage(comm):
    whole = mlp(3, 4, 8, 4)
    layers = [_Broken() if i == 4 else layer for i, layer in enumerate(whole.layers.layers)]
    model = Model(Sequence(layers), whole.examples)
    one = schedule("1f1b", stages=comm.size, micro_batches=6)
    method = Pipeline(model, mesh_of(comm, pp=comm.size), EXACT, 1, one, costs=[1.0] * 10)
    text = np.zeros((6, 2, 4), np.uint8)
    for i in range(6):
        method.backward(text[i], 1.0, last=i == 5)


@pytest.mark.parametrize("world", ["virtual", pytest.param("mpi", marks=needs_mpi)])
def test_a_stage_that_fails_says_where_and_ends_the_job(world):
    with pytest.raises(FloatingPointError, match="injected at") as caught:
        sd.run(break_stage, 3, world=world)
    took_s = time.time() - float(str(caught.value).split()[-1])
    print(f"ended {took_s:.2f} s after the fault")
    assert took_s < 15  # the promise is 3 s; the rest is for a busy machine
    assert "in F2 of stage 1 on rank 1 of the pipeline: micro-batch 2" in "\n".join(caught.value.__notes__)


# -- the record -------------------------------------------------------------------------------------------


def twice(comm):
    method = pipeline(comm, "gpt", "1f1b", 3)
    for step in range(2):
        trained(method, "gpt", step)
    method.loss(windows("gpt", 3))


def test_the_record_has_every_run():
    trace = sd.run(twice, 2).trace
    one = schedule("1f1b", stages=2, micro_batches=3)
    first, last = executed(one, trace, run=0), executed(one, trace)
    assert first.course.start[0][0] == last.course.start[0][0] == 0
    assert executed(one, trace, run=1).course == last.course
    with pytest.raises(sd.ArgumentError, match="run 2 of 1f1b: the record has it 2 times on all ranks"):
        executed(one, trace, run=2)
    spans = [s for s in trace if s.rank == 0 and s.name in ("F0", "F1", "F2", "B0", "B1", "B2")]
    assert all(s.micro_batch == int(s.name[1:]) for s in spans)


def test_a_rank_that_does_nothing_has_as_many_runs():
    one = parse("# stages 0 1 |\n0F0 1F0 1B0 0B0\n-\n")

    def program(comm):
        for _ in range(2):
            rehearse(comm, one, Times())

    found = executions(one, sd.run(program, 2).trace)
    assert [run.makespan for run in found] == [simulate(one).makespan] * 2
