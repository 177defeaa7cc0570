"""A model in a pipeline gets the gradients and the weights of one rank, by every synchronous schedule."""

import numpy as np
import pytest
from harness import virtual
from pipeline_training import (
    BOTH_WAYS,
    EXACT,
    MODELS,
    SCALE,
    SIZE,
    SYNCHRONOUS,
    close,
    found,
    mesh_of,
    pipeline,
    serial,
    trained,
    windows,
)

import simdist as sd
from simdist.arrays import on_host
from simdist.cluster import preset
from simdist.comm import Mesh
from simdist.comm.solo import SoloCommunicator
from simdist.errors import ArgumentError, CollectiveMismatch
from simdist.nn import Embedding, Layer, Linear, Model, Noise, Sequence, Shape, auxiliary, gpt
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.pipeline import Pipeline, Schedule, parse, schedule, validate
from simdist.parallel.pipeline.passes import forwards
from simdist.parallel.precision import precision

every_schedule = pytest.mark.parametrize("name", SYNCHRONOUS)


def gradients(comm, model, name, m):
    method = pipeline(comm, model, name, m)
    return trained(method, model), found(method)


def auxiliary_of(comm, ranks):
    with auxiliary.collected() as losses:
        if ranks > 1:
            trained(pipeline(comm, "experts", "1f1b", 4), "experts")
        else:
            method = DataParallel(MODELS["experts"](), SoloCommunicator(), EXACT, 1)
            method.backward(windows("experts", 4), SCALE, Noise(1, 0, np.arange(SIZE * 4)))
    return losses.total


def test_auxiliary_losses_are_those_of_the_batch_alone():
    """What goes forward to find out shapes is of no batch."""
    (alone,) = sd.run(auxiliary_of, 1, args=(1,)).results
    assert sum(sd.run(auxiliary_of, 3, args=(3,)).results) == pytest.approx(alone, rel=1e-12) != 0


def check(run, model, name, p, m):
    if name in BOTH_WAYS and p % 2:
        return
    total, expected = serial(model, m)
    results = run(gradients, p, model, name, m)
    for loss, own in results:
        assert loss == pytest.approx(total, rel=1e-12)
        close(own, expected)
    assert {key for _, own in results for key in own} == {*expected}


@pytest.mark.slow(but=14)
@every_schedule
@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 5), (4, 2), (4, 9)])
def test_gradients_are_those_of_one_rank(spmd, name, p, m):
    check(spmd, "gpt", name, p, m)


@pytest.mark.slow(but=4)
@every_schedule
@pytest.mark.parametrize("m", [5, 24])
def test_on_eight_ranks(name, m):
    check(virtual, "mlp", name, 8, m)


@pytest.mark.slow(but=8)
@every_schedule
@pytest.mark.parametrize("model", ["mlp", "untied", "full", "selective"])
def test_of_other_models(name, model):
    check(virtual, model, name, 4, 5)


@pytest.mark.slow
@every_schedule
@pytest.mark.parametrize("model", ["mlp", "gpt"])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_every_shape(name, model, p):
    for m in range(1, 3 * p + 1):
        check(virtual, model, name, p, m)


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe"])
def test_layers_with_losses_of_their_own(spmd, name):
    """These hang on how the batch is cut, so the one rank has the same micro-batches."""
    alone, total = DataParallel(MODELS["experts"](), SoloCommunicator(), EXACT, 1), 0.0
    for i in range(3):
        total += alone.backward(windows("experts", 3)[SIZE * i : SIZE * (i + 1)], SCALE, last=i == 2)
    for loss, own in spmd(gradients, 2, "experts", name, 3):
        assert loss == pytest.approx(total, rel=1e-12)
        close(own, found(alone))


def test_a_schedule_of_ones_own(spmd):
    mine = parse("F0 F1 B0 I1 F2 W1 B2\nF0 I0 F1 B1 W0 F2 B2", "mine")
    results = spmd(lambda comm: by(comm, mine), 2)
    for own in results:
        close(own, serial("gpt", 3)[1])


@pytest.mark.parametrize("m", [3, 8])
def test_four_pipelines_on_the_same_ranks(spmd, m):
    one = schedule("chimera", stages=4, micro_batches=m, chunks=4)
    for own in spmd(lambda comm: by(comm, one), 4):
        assert own.keys() == serial("gpt", m)[1].keys()  # each rank has all stages
        close(own, serial("gpt", m)[1])


@pytest.mark.parametrize(
    "text",
    [
        "# stages 1 2 | 0 1\n1F0 2F0 2B0 1B0 2F1 2B1\n0F0 0F1 1F1 1B1 0B0 0B1",  # two have stage 1, and the tied table
        "# stages 0 | 0\n0F0 0B0 0F1 0B1\n-",  # a rank that has a copy, and nothing to do
    ],
)
def test_copies_whichever_layers_a_rank_has_first(spmd, text):
    for own in spmd(lambda comm: by(comm, parse(text, "mine")), 2):
        close(own, serial("gpt", 2)[1])


def by(comm, one):
    method = Pipeline(MODELS["gpt"](), mesh_of(comm, pp=comm.size), EXACT, 1, one)
    trained(method, "gpt")
    return found(method)


class Untouched(Layer):
    """Passes on what it gets, though it has weights."""

    def __init__(self, layer, view):
        self.layer, self.parameters, self.view = layer, layer.parameters, view

    def forward(self, x, noise=None):
        return self.view(x), None

    def backward_input(self, context, dy):
        return self.view(dy), None

    def backward_weight(self, context, pending):
        pass


VIEWS = {"itself": lambda x: x, "a view": lambda x: x[:], "mirrored": lambda x: x[..., ::-1]}


def passing(view):
    between = [Untouched(Linear(f"unused{i}", 4, 4), view) for i in range(4)]
    layers = [Embedding("table", 256, 4), *between, Linear("logits", 32, 256)]
    return Model(Sequence(layers), lambda windows: (windows[:, :-1], windows[:, -1]))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zb-v"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_what_passes_a_stage_untouched_stays_as_it_is(name, view):
    """It came in the room of a message, where the next one comes while this is still on its way over a slow wire."""
    batch, m = np.random.default_rng(0).integers(256, size=(12, 9), dtype=np.uint8), 6
    alone = DataParallel(passing(view), SoloCommunicator(), EXACT, 1)
    alone.backward(batch, SCALE)
    p = 3 if name == "zb-v" else 6

    def program(comm):
        one = schedule(name, stages=p, micro_batches=m)
        method = Pipeline(passing(view), mesh_of(comm, pp=p), EXACT, 1, one, costs=[1.0] * 6)
        for i in range(m):
            method.backward(batch[2 * i : 2 * i + 2], SCALE, last=i == m - 1)
        return found(method)

    for own in sd.run(program, p, cluster=preset("h100").with_(eager_bytes=0, devices_per_node=1)).results:
        close(own, found(alone))


# -- with data parallelism --------------------------------------------------------------------------------


def steps(comm, name, m, sizes, recipe, zero_stage, num_steps=3):
    """The weights after some steps, whole on every rank of dp."""
    method = pipeline(comm, "gpt", name, m, recipe, sizes, zero_stage=zero_stage)
    for step in range(num_steps):
        trained(method, "gpt", step)
        assert method.step(0.1)
    return {p.name: on_host(p.data).astype(np.float64) for p in method.model.parameters}, method.update.norm


def serial_steps(m, recipe, num_steps=3):
    method = DataParallel(MODELS["gpt"](), SoloCommunicator(), recipe, 1)
    for step in range(num_steps):
        for i in range(m):
            own = slice(SIZE * i, SIZE * (i + 1))
            method.backward(windows("gpt", m, step)[own], SCALE, Noise(1, step, np.arange(own.start, own.stop)))
        method.step(0.1)
    return {p.name: on_host(p.data).astype(np.float64) for p in method.model.parameters}, method.update.norm


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("sizes", [{"pp": 2, "dp": 2}, {"pp": 2}, {"pp": 4}, {"dp": 2}])
@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe"])
@pytest.mark.parametrize("zero_stage", [0, 1, 2])
def test_trains_as_one_rank_with_data_parallelism_and_zero(spmd, sizes, name, zero_stage):
    if name == "dualpipe" and "pp" not in sizes:
        return
    recipe = Recipe("adamw", weight_decay=0.01, max_norm=0.5, precision=precision("float64"))
    expected, norm = serial_steps(3 * sizes.get("dp", 1), recipe)
    for weights, clipped in spmd(steps, np.prod([*sizes.values()]).item(), name, 3, sizes, recipe, zero_stage):
        assert clipped == pytest.approx(norm, rel=1e-12)
        for key, own in weights.items():
            np.testing.assert_allclose(own, expected[key], rtol=1e-9, atol=1e-11, err_msg=key)


@pytest.mark.parametrize("short", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
def test_short_numbers_train_too(spmd, name, short):
    recipe = Recipe(precision=precision(short))
    expected, _ = serial_steps(3, EXACT)
    for weights, _ in spmd(steps, 2, name, 3, {"pp": 2}, recipe, 0):
        for key, own in weights.items():
            np.testing.assert_allclose(own, expected[key], rtol=0, atol=0.1, err_msg=key)


def copies(comm, name):
    method = pipeline(comm, "gpt", name, 3)
    for step in range(2):
        trained(method, "gpt", step)
        method.step(0.1)
    return {p.name: p.data.copy() for p in method.model.parameters}


@pytest.mark.parametrize("name", ["1f1b", "dualpipe"])
def test_copies_of_a_parameter_stay_the_same_bits(spmd, name):
    results = spmd(copies, 4, name)
    shared = 0
    for r, one in enumerate(results):
        for other in results[r + 1 :]:
            for key in {*one} & {*other}:
                np.testing.assert_array_equal(one[key], other[key])
                shared += 1
    assert shared == (1 if name == "1f1b" else len(serial("gpt", 3)[1]))


def copies_of_three(comm, zero_stage):
    """Three ranks of dp: which two of them a ring adds up first depends on the chunk."""
    model = gpt(Shape(layers=2, width=128, heads=2, context=5))
    recipe = Recipe(precision=precision("float32"))
    method = Pipeline(model, Mesh(comm, pp=2, dp=3), recipe, 1, schedule("1f1b", 2, 2), zero_stage=zero_stage)
    for step in range(2):
        for i in range(2):
            own = windows("gpt", 6, step)[SIZE * (2 * method.mesh.dp.rank + i) :][:SIZE]
            method.backward(own, SCALE, last=i == 1)
        method.step(0.1)
    return next(p.data.copy() for p in method.model.parameters if p.name == "embedding.tokens")


@pytest.mark.parametrize("zero_stage", [0, 1, 2])
def test_a_tied_table_has_the_same_bits_wherever_it_stands(zero_stage):
    apart = preset("h100").with_(name="apart", devices_per_node=1)  # on one node all chunks are added up in one order
    first, *others = sd.run(copies_of_three, 6, args=(zero_stage,), cluster=apart).results
    for other in others:
        np.testing.assert_array_equal(other, first)


# -- loss, logits, state --------------------------------------------------------------------------------


def sayings(comm, name, num_windows):
    method = pipeline(comm, "gpt", name, 4)
    own = windows("gpt", 8)[:num_windows]
    return method.loss(own), method.logits(own[:, 1:])


@pytest.mark.parametrize("name", ["gpipe", "v-half", "dualpipe"])
@pytest.mark.parametrize("num_windows", [1, 7])
def test_loss_and_logits_are_known_to_all(spmd, name, num_windows):
    alone = DataParallel(MODELS["gpt"](), SoloCommunicator(), EXACT, 1)
    own = windows("gpt", 8)[:num_windows]
    for total, logits in spmd(sayings, 2, name, num_windows):
        assert total == pytest.approx(alone.loss(own), rel=1e-12)
        np.testing.assert_allclose(logits, alone.logits(own[:, 1:]), rtol=1e-12, atol=1e-13)


def goes_on(comm):
    """Trains, hands its state to another that goes on; beside it one that never stopped."""
    recipe = Recipe("adamw", precision=precision("float64"))
    method, other = pipeline(comm, "gpt", "1f1b", 3, recipe), pipeline(comm, "gpt", "zb-h1", 3, recipe)
    trained(method, "gpt")
    method.step(0.1)
    other.restore(method.vectors(), method.numbers())
    for each in (method, other):
        trained(each, "gpt", 1)
        each.step(0.1)
    return [{p.name: p.data.copy() for p in each.model.parameters} for each in (method, other)]


def test_goes_on_from_anothers_state(spmd):
    for one, other in spmd(goes_on, 2):
        for name in one:
            np.testing.assert_allclose(other[name], one[name], rtol=1e-12, atol=1e-13)


# -- traffic --------------------------------------------------------------------------------------------


def traffic(comm, model, name, m):
    """Bytes of the messages between stages, what the executor counted, and bytes of each sum over ranks."""
    method = pipeline(comm, model, name, m)
    first = len(comm.recorder.rows)
    trained(method, model)
    spans = comm.recorder.spans()[first:]
    own = [s.bytes for s in spans if s.name == "send" and s.context == method.mesh.pp.context]
    sums = [s.bytes for s in spans if s.name.startswith("all_reduce ")]
    return own, method.executor.messages.sent_bytes, sums


@pytest.mark.slow(but=4)
@every_schedule
def test_messages_are_those_of_the_schedule(spmd, name):
    one = schedule(name, stages=4, micro_batches=6)
    item = SIZE * 5 * 8 * 8  # samples, tokens, width, bytes of a number
    for (own, num_bytes, _), promised in zip(spmd(traffic, 4, "gpt", name, 6), validate(one).messages, strict=True):
        assert own == [item] * promised
        assert num_bytes == item * promised


def test_a_tied_table_travels_only_between_two_ranks(spmd):
    table = 256 * 8 * 8
    for model, name, expected in (("untied", "1f1b", [0] * 4), ("gpt", "1f1b", [1, 0, 0, 1]), ("gpt", "zb-v", [0] * 4)):
        assert [sums.count(table) for *_, sums in spmd(traffic, 4, model, name, 4)] == expected


# -- what is refused --------------------------------------------------------------------------------------


def test_forwards_alone():
    assert str(forwards(schedule("zb-v", stages=2, micro_batches=3), 2)) == "0F0 0F1 3F0 3F1\n1F0 2F0 1F1 2F1"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda comm: pipeline(comm, "gpt", "pipedream", 2), "policy 'stashing'"),
        (lambda comm: pipeline(comm, "gpt", "1f1b", 2, zero_stage=4), "ZeRO stage 4; a pipeline needs"),
        (lambda comm: pipeline(comm, "gpt", "1f1b", 2, costs=[1, 2]), "costs of 2 layers; there are 2 ranks and 16"),
        (lambda comm: by(comm, schedule("interleaved-1f1b", stages=2, micro_batches=2, chunks=9)), "in 18 stages"),
        (lambda comm: by(comm, schedule("1f1b", stages=3, micro_batches=2)), "for 3 ranks"),
        (lambda comm: by(comm, Schedule("mine", parse("F0 B0\nB0 F0").rows)), "before F0"),
        (lambda comm: pipeline(comm, "gpt", "1f1b", 2).backward(windows("gpt", 1), 1.0), "1 micro-batches on rank"),
    ],
)
def test_what_cannot_be(spmd, program, message):
    with pytest.raises(ArgumentError, match=message):
        spmd(program, 2)


def test_ranks_with_different_schedules(spmd):
    with pytest.raises(CollectiveMismatch, match="pipeline gpipe, rows and stages "):
        spmd(lambda comm: pipeline(comm, "gpt", ("1f1b", "gpipe")[comm.rank], 2), 2)


def test_large_messages_do_not_deadlock():
    """1F1B comes to a stop where a send waits for its receive: here all of them would."""
    hold = preset("this-machine").with_(eager_bytes=0)
    for name in SYNCHRONOUS:
        results = sd.run(gradients, 4, args=("gpt", name, 5), cluster=hold).results
        close(results[0][1], serial("gpt", 5)[1])
