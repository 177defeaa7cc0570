"""Where gradients are added up and who updates makes no difference to the weights, but to what travels.

The oracle is the same training on one rank, without any method.
"""

from functools import partial

import numpy as np
import pytest

import simdist as sd
from simdist.arrays import partition
from simdist.cluster import Cluster, Device, Link
from simdist.collectives import cost
from simdist.comm.solo import SoloCommunicator
from simdist.comm.virtual.world import run_virtual
from simdist.nn import Noise, Shape, gpt, mlp
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.centralized import Centralized, MapReduce
from simdist.parallel.precision import precision

STEPS = 20
WINDOWS = np.random.default_rng(2).integers(97, 123, (STEPS, 10, 4), dtype=np.uint8)

METHODS = {"centralized": Centralized, "map-reduce": MapReduce, "tree": partial(DataParallel, algorithm="tree")}
every_method = pytest.mark.parametrize("name", METHODS)
every_rule = pytest.mark.parametrize("optimizer", ["sgd", "adamw", "adamw8bit", "lars", "lamb"])


def model():
    return mlp(context_bytes=3, embedding_width=4, hidden_width=8, hidden_layers=1)


def exact(optimizer="sgd", **options):
    return Recipe(optimizer, precision=precision("float64"), **options)


def serial(recipe, windows=WINDOWS):
    """The weights after some steps on whole batches, by one rank alone."""
    alone = DataParallel(model(), SoloCommunicator(), recipe, seed=1)
    for step in range(STEPS):
        alone.backward(windows[step], 1 / len(windows[step]))
        alone.step(0.1)
    return alone.weights


def train(comm, name, recipe, batch=10, micro_batches=1):
    """The weights that a rank works with after the same steps, and what it said on the way."""
    method, changed = METHODS[name](model(), comm, recipe, seed=1 + comm.rank), []
    for step in range(STEPS):
        own = WINDOWS[step, :batch][partition(batch, comm.size)[comm.rank]]
        for i, part in enumerate(np.array_split(own, micro_batches)):
            method.backward(part, 1 / batch, last=i == micro_batches - 1)
        changed.append(method.step(0.1))
    method.loss(own)  # after which a mapper, too, has the latest weights
    return method.weights.astype(np.float64), changed


@pytest.mark.slow(but=8)
@every_method
@every_rule
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_ranks_train_as_one(spmd, name, p, optimizer):
    recipe = exact(optimizer, max_norm=0.5, weight_decay=0.01)
    found = spmd(train, p, name, recipe, 10, 2)
    expected = serial(recipe)
    for weights, changed in found:
        assert changed == [True] * STEPS
        if optimizer != "adamw8bit":  # in which a bit more or less may round to another code
            np.testing.assert_allclose(weights, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(weights, found[0][0])


@pytest.mark.parametrize("name", ["centralized", "map-reduce"])
def test_the_norm_is_known_where_the_gradients_are_summed(spmd, name):
    def program(comm):
        method = METHODS[name](model(), comm, exact(max_norm=1.0), seed=1)
        method.backward(WINDOWS[0], 1.0)
        method.step(0.1)
        return method.update.norm

    first, *others = spmd(program, 3)
    assert first > 0 and np.isnan(others).all()


@every_method
@pytest.mark.parametrize("p", [8, 9])
def test_more_ranks_some_of_which_have_nothing_to_do(name, p):
    found = sd.run(train, p, args=(name, exact(), 5, 2)).results
    for weights, _ in found:
        np.testing.assert_allclose(weights, serial(exact(), WINDOWS[:, :5]), rtol=1e-12, atol=1e-12)


@every_method
@pytest.mark.parametrize("short", ["bf16", "fp16"])
def test_short_numbers_train_too(spmd, name, short):
    recipe = Recipe(precision=precision(short))
    found = spmd(train, 3, name, recipe)
    for weights, changed in found:
        np.testing.assert_allclose(weights, serial(exact()), rtol=0, atol=0.05)
        np.testing.assert_array_equal(weights, found[0][0])
        assert changed == [True] * STEPS


def overflow(comm, name):
    method = METHODS[name](model(), comm, Recipe(precision=precision("fp16")), seed=1)
    before, said = method.weights.copy(), []
    for scale in (1e9 if comm.rank == comm.size - 1 else 0.1, 0.1):
        method.backward(WINDOWS[0], scale)
        said.append(method.step(0.1))
        method.loss(WINDOWS[0])
        said.append(bool(np.array_equal(before, method.weights)))
    return said, method.update.scale


@every_method
def test_a_rank_that_overflows_skips_the_step_of_all(spmd, name):
    for said, scale in spmd(overflow, 3, name):
        assert said == [False, True, True, False]
        assert scale == 2.0**15


def traffic(comm, name):
    """Of a step of two micro-batches: messages, their bytes, and those of the weights."""
    method = METHODS[name](model(), comm, Recipe(), seed=1)
    method.backward(WINDOWS[0], 0.1)
    method.step(0.1)
    first = len(comm.recorder.rows)
    method.backward(WINDOWS[0, :4], 0.1, last=False)
    method.backward(WINDOWS[0, 4:], 0.1)
    method.step(0.1)
    sent = [span.bytes for span in comm.recorder.spans()[first:] if span.name == "send"]
    return len(sent), sum(sent), method.weights.nbytes


@every_method
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_what_each_rank_sends_in_a_step(spmd, name, p):
    ways = {"centralized": ("linear", "linear"), "map-reduce": ("binomial", "binomial"), "tree": ("tree",)}[name]
    found = spmd(traffic, p, name)
    for rank, (messages, sent, n) in enumerate(found):
        kinds = ("reduce", "broadcast") if len(ways) == 2 else ("all_reduce",)
        promised = [
            cost(kind, way, ranks=p, num_bytes=n, rank=rank, itemsize=4) for kind, way in zip(kinds, ways, strict=True)
        ]
        assert messages == sum(c.messages for c in promised)
        assert sent == sum(c.sent_bytes for c in promised)
    assert sum(sent for _, sent, _ in found) == 2 * (p - 1) * found[0][2]
    if name == "centralized":
        assert [messages for messages, *_ in found] == [p - 1] + [1] * (p - 1)


# A wire on which bytes cost and messages hardly do, one each way at every rank, and arithmetic that takes no time.
WIRE = Cluster("wire", Device("", 1e40, 1e40, 1e40), Link(1e-9, 1e6), Link(1e-9, 1e6), 1 << 20, eager_bytes=1 << 40)


def seconds(name, p):
    """How long the communication of a step takes, in times that all weights pass through a wire."""
    methods = METHODS | {"ring": partial(DataParallel, algorithm="ring")}

    def program(comm):
        method = methods[name](model(), comm, Recipe(), seed=1)
        method.backward(WINDOWS[0], 0.1)
        method.step(0.1)
        comm.barrier()
        start_s = comm.clock()
        method.backward(WINDOWS[0], 0.1)
        method.step(0.1)
        comm.barrier()
        return (comm.clock() - start_s) * 1e6 / method.weights.nbytes

    return max(run_virtual(program, p, WIRE)[0])


def test_the_server_is_a_bottleneck_that_grows_with_the_ranks():
    """The formulas of Centralized's docstring, without latency and addition."""
    for p in (2, 4, 8, 16):
        assert seconds("centralized", p) == pytest.approx(2 * (p - 1), rel=1e-5)
        assert seconds("tree", p) == pytest.approx(2 * np.log2(p), rel=1e-5)
        assert seconds("map-reduce", p) == pytest.approx(2 * np.log2(p), rel=1e-5)
        assert seconds("ring", p) < 2.1


def held(comm, name):
    method = METHODS[name](model(), comm, exact("adamw"), seed=1)
    return {key: sum(len(shard.data) for shard in shards) for key, shards in method.vectors().items()}


def test_only_the_server_keeps_the_optimizers_state(spmd):
    size = model().parameters.size
    for name in ("centralized", "map-reduce"):
        found = spmd(held, 3, name)
        assert found == [dict.fromkeys(["", "adamw.m/", "adamw.v/"], size if r == 0 else 0) for r in range(3)]


def goes_on(comm, name):
    """Trains, hands its state to another method that goes on for two steps; beside it one that never stopped."""
    method = METHODS[name](model(), comm, exact("adamw"), seed=1)
    other = METHODS[name](model(), comm, exact("adamw"), seed=2)
    for step in range(3):
        method.backward(WINDOWS[step], 0.1)
        method.step(0.1)
    other.restore(method.vectors(), method.numbers())
    for each in (method, other):
        for step in (3, 4):
            each.backward(WINDOWS[step], 0.1)
            each.step(0.1)
        each.loss(WINDOWS[0])
    return method.weights, other.weights


@every_method
def test_a_method_goes_on_from_anothers_state(spmd, name):
    for weights, others in spmd(goes_on, 3, name):
        np.testing.assert_array_equal(weights, others)


def asked(comm, name):
    """What may come next, by the weights after a step."""
    method = METHODS[name](model(), comm, exact(), seed=1)
    method.backward(WINDOWS[0, partition(10, comm.size)[comm.rank]], 0.1)
    method.step(0.1)
    return method.logits(WINDOWS[1, :, :3])


@every_method
def test_every_rank_answers_by_the_latest_weights(spmd, name):
    alone = spmd(asked, 1, "tree")[0]
    for logits in spmd(asked, 3, name):
        np.testing.assert_allclose(logits, alone, rtol=1e-12, atol=1e-12)


def dropped(comm, name):
    net = gpt(Shape(layers=1, width=8, heads=2, context=5, dropout=0.3))
    method = METHODS[name](net, comm, exact(), seed=1)
    batch = np.random.default_rng(0).integers(0, 256, (6, 6), np.uint8)
    own = partition(6, comm.size)[comm.rank]
    for step in range(2):
        method.backward(batch[own], 1 / 30, Noise(0, step, np.arange(6)[own]))
        method.step(0.5)
    method.loss(batch[own])
    return method.weights


@every_method
def test_a_gpt_with_dropout_on_any_number_of_ranks(spmd, name):
    alone = spmd(dropped, 1, name)[0]
    for weights in spmd(dropped, 3, name):
        np.testing.assert_allclose(weights, alone, rtol=1e-12, atol=1e-12)
