"""Pipelines that update while micro-batches are in flight, against their papers' formulas, worked out by one process.

The oracle has the whole model, and for each stage the list of all versions of its weights.
"""

import numpy as np
import pytest
from harness import xp
from pipeline_training import EXACT, LENGTHS, MODELS, SCALE, SIZE, mesh_of

from simdist.arrays import Ledger, recorded
from simdist.errors import ArgumentError
from simdist.nn import Shape, gpt
from simdist.parallel import Recipe
from simdist.parallel.pipeline import PipeDream, Times, parse, schedule, split, validate
from simdist.parallel.precision import precision

RATE = 0.5


def micro_batches(model, m, part=0):
    return np.random.default_rng(part).integers(97, 123, size=(m, SIZE, LENGTHS[model]), dtype=np.uint8)


def bound(model, dtype=np.float64):
    net = MODELS[model]()
    net.parameters.bind(np.empty(net.parameters.size, dtype), np.zeros(net.parameters.size, dtype))
    net.parameters.initialize(1)
    return net


def stages_of(net, n):
    """For each stage its part of the flat vector."""
    layers = net.layers.layers
    cuts = split([sum(p.size for p in layer.parameters) for layer in layers], n)
    found = []
    for cut in cuts:
        names = [p.name for layer in layers[cut] for p in layer.parameters]
        start = net.parameters.spans[names[0]].start if names else found[-1].stop
        found.append(slice(start, net.parameters.spans[names[-1]].stop if names else start))
    return found


def by_formula(model, n, batches, delay, group=1, momentum=0.0, dtype=np.float64):
    """w_s(t+1) = w_s(t) - ν ∇_s f(w_0(t - delay(0)), …, w_{n-1}(t - delay(n-1))), each stage s by itself.

    With momentum the gradient is replaced by its velocity. Versions before the first are the first.
    """
    net = bound(model, dtype)
    weights, gradient = net.parameters.data.copy(), net.parameters.gradient
    history, velocity = [weights], np.zeros_like(weights)
    parts, total = stages_of(net, n), 0.0
    for t in range(len(batches) // group):
        for s, part in enumerate(parts):
            net.parameters.data[part] = history[max(0, t - delay(s))][part]
        gradient[...] = 0
        for i in range(t * group, (t + 1) * group):
            loss, context = net.forward(batches[i])
            total += loss
            net.backward(context, SCALE)
        velocity = momentum * velocity + gradient
        history.append(history[-1] - RATE * velocity)
    return history[-1], total, parts


def train(comm, model, name, m, recipe, calls=1, options=None):
    one = schedule(name, stages=comm.size, micro_batches=m, **(options or {}))
    method = PipeDream(MODELS[model](), mesh_of(comm, pp=comm.size), recipe, 1, one)
    total = sum(method.train([*micro_batches(model, m, call)], SCALE, RATE) for call in range(calls))
    return method.weights.copy(), total, method.weight_versions


PLAIN = Recipe(momentum=0.0, precision=precision("float64"))
SINGLE = Recipe(momentum=0.0, precision=precision("float32"))


def same(own, expected):
    """To the last bit: each rank does the same arithmetic in the same order. A device's kernels round otherwise."""
    rtol, atol = (0, 0) if xp.device == "cpu" else (1e-9, 1e-15)
    np.testing.assert_allclose(own, expected, rtol, atol)


def check(results, weights, total, parts):
    for (own, loss, _), part in zip(results, parts, strict=True):
        same(own, weights[part])
        assert loss == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(("name", "options", "updates"), [("pipedream", {}, 8), ("pipedream-2bw", {"group": 4}, 2)])
def test_the_updates_of_a_batch_are_counted(spmd, name, options, updates):
    def program(comm):
        one = schedule(name, stages=2, micro_batches=8, **options)
        return PipeDream(MODELS["mlp"](), mesh_of(comm, pp=2), PLAIN, 1, one).num_updates

    assert spmd(program, 2) == [updates] * 2


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("model", ["mlp", "untied"])
def test_weight_stashing_follows_its_formula(spmd, n, model):
    batches = micro_batches(model, 9)
    # w(t+1) = w(t) - ν ∇f(w_1(t-n+1), w_2(t-n+2), …, w_n(t)), the first stage being 0 here
    expected = by_formula(model, n, batches, lambda s: n - 1 - s)
    results = spmd(train, n, model, "pipedream", 9, PLAIN)
    check(results, *expected)
    assert [most for *_, most in results] == [n - s for s in range(n)]


@pytest.mark.parametrize("model", ["mlp", "untied"])
def test_in_float32_weights_are_to_the_bit_those_of_one_process(spmd, model):
    """After many updates both are as far from those in float64: rounding has grown, and alike."""
    batches, alone = micro_batches(model, 64), lambda s: 1 - s
    weights, _, parts = by_formula(model, 2, batches, alone, dtype=np.float32)
    exact, _, _ = by_formula(model, 2, batches, alone)
    for (own, *_), part in zip(spmd(train, 2, model, "pipedream", 64, SINGLE), parts, strict=True):
        if xp.device == "cpu":
            np.testing.assert_array_equal(own, weights[part])
        np.testing.assert_allclose(own, exact[part], 0, 1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("model", ["mlp", "untied"])
def test_vertical_sync_follows_its_formula(spmd, n, model):
    batches = micro_batches(model, 9)
    # w(t+1) = w(t) - ν ∇f(w_1(t-n+1), w_2(t-n+1), …, w_n(t-n+1))
    check(spmd(train, n, model, "pipedream-vertical-sync", 9, PLAIN), *by_formula(model, n, batches, lambda s: n - 1))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("group", [4, 5])
def test_2bw_is_sgd_one_step_late_bit_for_bit(spmd, n, momentum, group):
    batches = micro_batches("mlp", 4 * group)
    # W(t+1) = W(t) - ν ∇f(W(t-1))
    expected = by_formula("mlp", n, batches, lambda s: 1, group, momentum)
    recipe = Recipe(momentum=momentum, precision=precision("float64"))
    results = spmd(train, n, "mlp", "pipedream-2bw", 4 * group, recipe, 1, {"group": group})
    check(results, *expected)
    assert all(most == 2 for *_, most in results)


def test_the_formulas_differ():
    """Else the tests above would prove nothing."""
    batches = micro_batches("mlp", 9)
    ways = [lambda s: 0, lambda s: 3 - s, lambda s: 3, lambda s: 1]
    ends = [by_formula("mlp", 4, batches, way)[0] for way in ways]
    for i, one in enumerate(ends):
        for other in ends[:i]:
            assert np.abs(one - other).max() > 1e-6


def test_versions_are_those_that_the_validator_tells(spmd):
    for name in ("pipedream", "pipedream-vertical-sync", "pipedream-2bw"):
        results = spmd(train, 4, "mlp", name, 12, PLAIN)
        promised = validate(schedule(name, stages=4, micro_batches=12)).weight_versions
        assert [most for *_, most in results] == [chunks[0] for chunks in promised]


def remembered(comm):
    with recorded(ledger := Ledger()):
        method = made(comm, PLAIN)
        method.train([*micro_batches("mlp", 3)], SCALE, RATE)
        return ledger.peaks["parameters"] / method.weights.nbytes


def test_old_versions_are_memory_for_parameters(spmd):
    assert spmd(remembered, 3) == [2, 2, 1]  # all three micro-batches meet the first version on rank 0


def test_a_second_call_begins_with_what_the_first_left(spmd):
    first, _, parts = by_formula("mlp", 2, micro_batches("mlp", 5), lambda s: 1 - s)
    results = spmd(train, 2, "mlp", "pipedream", 5, PLAIN, 2)
    again = spmd(train, 2, "mlp", "pipedream", 5, PLAIN)
    for (own, *_), (before, *_), part in zip(results, again, parts, strict=True):
        same(before, first[part])
        assert np.abs(own - before).max() > 0


def sayings(comm, asked):
    one = schedule("pipedream", stages=comm.size, micro_batches=5)
    method = PipeDream(MODELS["untied"](), mesh_of(comm, pp=comm.size), PLAIN, 1, one)
    method.train([*micro_batches("untied", 5)], SCALE, RATE)
    return method.loss(asked), method.logits(asked[:, :-1])


def test_what_it_says_is_by_its_newest_weights(spmd):
    net, asked = bound("untied"), micro_batches("untied", 1, 7)[0]
    net.parameters.data[:], _, _ = by_formula("untied", 3, micro_batches("untied", 5), lambda s: 2 - s)
    for total, logits in spmd(sayings, 3, asked):
        assert total == pytest.approx(net.forward(asked)[0], rel=1e-12)
        np.testing.assert_allclose(logits, net.logits(asked[:, :-1]), rtol=1e-12)


def replicated(comm):
    """Two rows of two stages, each with every other sample; and beside it one row with all."""
    batches = micro_batches("mlp", 6)
    one = schedule("pipedream", stages=2, micro_batches=6)
    mesh = mesh_of(comm, pp=2, dp=2)
    method = PipeDream(MODELS["mlp"](), mesh, PLAIN, 1, one)
    method.train([each[mesh.dp.rank :: 2] for each in batches], SCALE, RATE)
    return mesh.pp.rank, method.weights.copy()


def test_with_data_parallelism(spmd):
    expected, _, parts = by_formula("mlp", 2, micro_batches("mlp", 6), lambda s: 1 - s)
    for stage, own in spmd(replicated, 4):
        np.testing.assert_allclose(own, expected[parts[stage]], rtol=1e-12, atol=1e-13)


def mine(comm, rows):
    one = parse(f"# mine: 2 ranks, 2 micro-batches, stashing every 2\n{rows}")
    return PipeDream(MODELS["mlp"](), mesh_of(comm, pp=comm.size), EXACT, 1, one)


def made(comm, recipe=EXACT, model=None, name="pipedream", **options):
    one = schedule(name, stages=comm.size, micro_batches=3)
    return PipeDream(model or MODELS["mlp"](), mesh_of(comm, pp=comm.size), recipe, 1, one, **options)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda comm: made(comm, name="1f1b"), "1f1b updates after all micro-batches"),
        (lambda comm: made(comm, Recipe(max_norm=1.0)), "max_norm 1.0"),
        (lambda comm: made(comm, Recipe(precision=precision("fp16"))), "precision fp16"),
        (lambda comm: made(comm, model=gpt(Shape(2, 8, 2, 5))), "embedding.tokens is used by several layers"),
        (lambda comm: made(comm).train([*micro_batches("mlp", 2)], 1.0, 1.0), "2 micro-batches on rank"),
        (lambda comm: made(comm, times=Times(forward=[1.0])), "forward has 1 times"),
        (lambda comm: mine(comm, "0F0 0B0\n0F1 0B1"), "needs one stage per rank"),
        (lambda comm: mine(comm, "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\n1F0 1F1 1B0 1B1"), "needs one stage per rank"),
    ],
)
def test_what_cannot_be(spmd, program, message):
    with pytest.raises(ArgumentError, match=message):
        spmd(program, 2)
