"""What all rules have in common."""

import tracemalloc
from functools import partial
from inspect import cleandoc
from textwrap import dedent

import numpy as np
import pytest

from simdist.arrays import Meter, charge, metered, partition, phantom
from simdist.collectives import all_reduce
from simdist.errors import ArgumentError, ArrayError
from simdist.optim import LAMB, LARS, SGD, Adam, AdamW, AdamW8bit, Optimizer
from simdist.optim.norm import alone

SIZE = 90_000  # more than a block
LAYERS = [slice(0, 20_000), slice(20_000, 20_064), slice(20_064, 60_001), slice(60_001, 89_000)]
DECAY = [LAYERS[0], LAYERS[2]]
BLOCK = 64

RULES = {
    "sgd": partial(SGD, weight_decay=0.1, decay=DECAY),
    "plain sgd": partial(SGD, momentum=0),
    "adam": partial(Adam, weight_decay=0.1, decay=DECAY),
    "adamw": partial(AdamW, weight_decay=0.1, decay=DECAY),
    "adamw8bit": partial(AdamW8bit, weight_decay=0.1, decay=DECAY, block=BLOCK),
    "lars": partial(LARS, layers=LAYERS, weight_decay=0.1, decay=DECAY),
    "lamb": partial(LAMB, layers=LAYERS, weight_decay=0.1, decay=DECAY),
}
every_rule = pytest.mark.parametrize("name", RULES)


def make(name, like, start=0, combine=alone):
    more = {"combine": combine} if name in ("lars", "lamb") else {}
    return RULES[name](like, start=start, **more)


def vectors(dtype, steps=3):
    """Weights and gradients; the scale of the gradient differs from layer to layer."""
    rng = np.random.default_rng(7)
    scale = np.repeat([1.0, 1e-3, 30.0, 1e-6, 1.0], np.diff([0, *(span.stop for span in LAYERS), SIZE]))
    return rng.normal(size=SIZE).astype(dtype), (scale * rng.normal(size=(steps, SIZE))).astype(dtype)


def train(name, dtype, span=slice(0, SIZE), combine=alone):
    weights, gradients = vectors(dtype)
    weights = weights[span].copy()
    rule = make(name, weights, span.start, combine)
    for step, gradient in enumerate(gradients):
        kept = gradient.copy()
        rule.step(weights, gradient[span], 0.1 / (step + 1))
        np.testing.assert_array_equal(gradient, kept)
    return weights, rule


def shard(comm, name, dtype):
    blocks = partition(-(-SIZE // BLOCK), comm.size)[comm.rank]
    span = slice(blocks.start * BLOCK, min(blocks.stop * BLOCK, SIZE))
    if name != "adamw8bit":  # all others may be cut anywhere
        span = partition(SIZE, comm.size)[comm.rank]
    return train(name, dtype, span, lambda values, op: all_reduce(values, comm, op))[0]


@pytest.mark.slow(but=7)
@every_rule
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_shards_give_the_bits_of_the_whole(spmd, p, dtype, name):
    expected, rule = train(name, dtype)
    assert rule.alignment == (BLOCK if name == "adamw8bit" else 1)
    np.testing.assert_array_equal(np.concatenate(spmd(shard, p, name, dtype)), expected)
    assert np.abs(expected - vectors(dtype)[0]).max() > 1e-3


@every_rule
def test_a_gradient_may_be_scaled_as_it_is_read(name):
    weights, gradients = vectors(np.float64)
    scaled, plain = weights.copy(), weights
    one, two = make(name, weights), make(name, weights)
    for gradient in gradients:
        one.step(scaled, 8 * gradient, 0.1, gradient_scale=0.125)  # powers of two change no bits
        two.step(plain, gradient, 0.1)
    np.testing.assert_array_equal(scaled, plain)


@every_rule
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_gradient_may_be_of_fewer_bits(name, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    weights, gradients = vectors(np.float32)
    short, plain = weights.copy(), weights
    one, two = make(name, weights), make(name, weights)
    for gradient in gradients.astype(dtype):
        one.step(short, gradient, 0.1, gradient_scale=0.5)
        two.step(plain, gradient.astype(np.float32), 0.1, gradient_scale=0.5)
    np.testing.assert_array_equal(short, plain)


@every_rule
def test_state_moves_to_other_shards(name):
    weights, whole = train(name, np.float32)
    gradient = vectors(np.float32)[1][0]
    kept, cut = {key: x.copy() for key, x in whole.vectors().items()}, 700 * BLOCK
    resumed = weights.copy()
    # The shards of LARS and LAMB have to talk.
    spans = [slice(0, SIZE)] if name in ("lars", "lamb") else [slice(0, cut), slice(cut, SIZE)]
    for span in spans:
        rule = make(name, resumed[span], span.start)
        rule.restore({key: x[span] for key, x in kept.items()}, whole.num_steps)
        rule.step(resumed[span], gradient[span], 0.05)
        assert rule.num_steps == 4
    whole.step(weights, gradient, 0.05)
    np.testing.assert_array_equal(resumed, weights)


@every_rule
def test_state_that_does_not_fit_changes_nothing(name):
    weights, rule = train(name, np.float32)
    before = {key: x.copy() for key, x in rule.state.items()}
    good = rule.vectors()
    wrong = [{**good, "other": weights}] + ([{key: x[1:] for key, x in good.items()}, {}] if good else [])
    for given in wrong:
        with pytest.raises(
            ArrayError, match=r" keeps \[.*\]; was given \[|has shape \(89999,\); this .* needs \(90000,\)"
        ):
            rule.restore(given, 9)
    assert rule.num_steps == 3
    for key, x in before.items():
        np.testing.assert_array_equal(rule.state[key], x)


@every_rule
def test_state_may_live_elsewhere(name, tmp_path):
    weights, gradients = vectors(np.float32)
    offloaded, here, there = weights.copy(), make(name, weights), make(name, weights)
    for key, x in there.state.items():
        there.state[key] = np.memmap(tmp_path / key, x.dtype, "w+", shape=x.shape)
        there.state[key][...] = x
    for gradient in gradients:
        here.step(weights, gradient, 0.1)
        there.step(offloaded, gradient, 0.1)
    np.testing.assert_array_equal(offloaded, weights)


@every_rule
def test_phantoms_cost_what_numbers_cost(name):
    costs = []
    for weights, gradient in (
        (phantom(SIZE), phantom(SIZE)),
        (np.ones(SIZE, np.float32), np.ones(SIZE, np.float32)),
    ):
        rule = make(name, weights)
        with metered(meter := Meter()):
            rule.step(weights, gradient, 0.1)
        costs.append((meter.flops, meter.bytes, sum(x.nbytes for x in rule.state.values())))
        assert {key: x.shape for key, x in rule.vectors().items()} == dict.fromkeys(rule.vectors(), (SIZE,))
    assert costs[0] == costs[1]
    assert costs[0][0] > 0 and costs[0][1] > 0


# Of each weight, as the rules' docstrings count: weights and state of 8 bytes (adamw8bit: state of 1), gradients of 4.
IN_LAYERS = LAYERS[-1].stop / SIZE
COSTS = {
    "sgd": (6, 4 * 8 + 4),
    "plain sgd": (2, 2 * 8 + 4),
    "adam": (14, 6 * 8 + 4),
    "adamw": (13, 6 * 8 + 4),
    "adamw8bit": (19, 2 * 8 + 4 + 4 * 1),
    "lars": (7 + 10 * IN_LAYERS, 4 * 8 + 4 + 2 * (8 + 4) * IN_LAYERS),
    "lamb": (16 + 10 * IN_LAYERS, 9 * 8 + 4 + 2 * (8 + 8) * IN_LAYERS),
}


@every_rule
def test_a_step_is_charged_for_what_it_reads_and_writes(name):
    weights = np.ones(SIZE)
    rule = make(name, weights)
    with metered(meter := Meter()):
        rule.step(weights, np.ones(SIZE, np.float32), 0.1)
    assert (meter.flops / SIZE, meter.bytes / SIZE) == pytest.approx(COSTS[name])


class Counting(np.ndarray):
    """An array whose item-by-item operations are counted."""

    count = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if "out" in options:
            options["out"] = tuple(x.view(np.ndarray) for x in options["out"])
        found = getattr(ufunc, method)(*(np.asarray(x) for x in inputs), **options)
        Counting.count += found.size
        return found.view(Counting)


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("rule", [SGD, partial(SGD, momentum=0), partial(SGD, nesterov=True), Adam, LAMB, LARS])
def test_operations_are_those_of_its_arrays(rule, decays):
    """All layers, so that every weight has a ratio; norms charge for themselves, and here there are none."""
    layers = {"layers": [slice(0, SIZE)]} if rule in (LAMB, LARS) else {}
    weights, gradient = (np.ones(SIZE).view(Counting) for _ in range(2))
    rule = rule(weights, weight_decay=0.1 * decays, **layers)
    if layers:
        rule._ratios = lambda *_: [0.5]
    rule.step(weights, gradient, 0.1)  # the first looks at the weights, too
    Counting.count = 0
    with metered(meter := Meter()):
        rule.step(weights, gradient, 0.1)
    assert meter.flops == Counting.count


@pytest.mark.parametrize(
    ("name", "num_bytes"),
    [("plain sgd", 0), ("sgd", 4), ("lars", 4), ("adam", 8), ("adamw", 8), ("lamb", 8), ("adamw8bit", 2 + 8 / BLOCK)],
)
def test_bytes_of_state(name, num_bytes):
    rule = make(name, np.zeros(64 * BLOCK, np.float32))
    assert sum(x.nbytes for x in rule.state.values()) == 64 * BLOCK * num_bytes


@pytest.mark.parametrize("name", ["sgd", "adamw", "adamw8bit"])
def test_before_the_first_step_there_is_state_alone(name):
    weights = np.zeros(1 << 16, np.float32)
    make(name, weights[:1])  # tables that all rules share
    tracemalloc.start()
    try:
        rule = make(name, weights)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < sum(x.nbytes for x in rule.state.values()) + 20_000


@every_rule
def test_nothing_to_do(name):
    weights = np.zeros(0, np.float32)
    rule = make(name, weights, 640)
    rule.step(weights, weights, 0.1)
    assert all(x.shape == (0,) for x in rule.vectors().values())


@every_rule
def test_shapes_must_fit(name):
    with pytest.raises(ArrayError, match=r"\(4,\)"):
        make(name, np.zeros(3)).step(np.zeros(3), np.zeros(4), 0.1)
    for like in (np.zeros((2, 2)), np.zeros(3, np.int32)):
        with pytest.raises(ArrayError, match="flat vector of floats"):
            make(name, like)
    with pytest.raises(ArgumentError, match="start is -1"):
        make(name, np.zeros(3), -1)


@every_rule
def test_decay_has_limits(name):
    with pytest.raises(ArgumentError, match=r"weight_decay is -0\.1"):
        RULES[name](np.zeros(3), weight_decay=-0.1)


@every_rule
def test_the_state_of_phantoms_is_restored(name):
    rule = make(name, phantom(SIZE))
    rule.restore(rule.vectors(), 3)
    assert rule.num_steps == 3


@every_rule
def test_weights_have_the_dtype_of_the_state(name):
    rule = make(name, np.zeros(SIZE, np.float32))
    with pytest.raises(ArrayError, match=r"dtype float64 .* needs \(90000,\) and float32"):
        rule.step(np.zeros(SIZE), np.zeros(SIZE), 0.1)


def test_the_rule_of_the_docstring():
    code = dedent(cleandoc(Optimizer.__doc__).partition("`_update`:\n\n")[2].partition("\n\nArgs:")[0])
    names = {"Optimizer": Optimizer, "np": np, "charge": charge}
    exec(code, names)
    weights, gradient, meter = np.zeros(5), np.array([3.0, -2.0, 0.0, -0.0, 1e-9], np.float32), Meter()
    with metered(meter):
        names["SignSGD"](weights).step(weights, gradient, 0.5, gradient_scale=-2.0)
    assert weights.tolist() == [0.5, -0.5, 0, 0, 0.5]
    assert (meter.flops, meter.bytes) == (10, 2 * 40 + 20)


class Rebinding(Optimizer):
    def _update(self, weights, gradient, rate, scale):
        weights = weights - rate * scale * gradient


def test_a_step_that_leaves_the_weights_as_they_were_is_told_once():
    """At the first gradient that is long enough to change weights, wherever that is."""
    rule, weights, gradient = Rebinding(np.zeros(SIZE)), np.ones(SIZE), np.zeros(SIZE)
    rule.step(weights, gradient, 0.1)
    gradient[-1] = 1e-16
    rule.step(weights, gradient, 0.1)
    gradient[-1] = 1.0
    rule.step(weights, gradient, 0.0)
    with pytest.warns(RuntimeWarning, match=r"Rebinding has left weights as they were.* rate, 0.1; `weights = …`"):
        rule.step(weights, gradient, 0.1)
    rule.step(weights, gradient, 0.1)


def test_weights_that_are_returned_are_refused():
    """They would be used by nothing, and training would leave the weights as they are."""

    class Returning(Optimizer):
        def _update(self, weights, gradient, rate, scale):
            return weights - rate * scale * gradient

    with pytest.raises(ArgumentError, match="_update of Returning returns an ndarray; needs None"):
        Returning(np.zeros(2)).step(np.zeros(2), np.ones(2), 0.1)
