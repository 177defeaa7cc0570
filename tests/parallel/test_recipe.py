from copy import deepcopy

import numpy as np
import pytest

import simdist as sd
from simdist.errors import ArgumentError, UnknownNameError
from simdist.nn import mlp
from simdist.nn.parameters import Parameter, Parameters
from simdist.optim import Optimizer
from simdist.optim.norm import alone
from simdist.parallel import DataParallel, Recipe, ZeRO, optimizer, optimizers
from simdist.parallel import recipe as of_recipe
from simdist.parallel.holding import Holding
from simdist.parallel.memory import rule_bytes
from simdist.parallel.precision import precision
from simdist.training import Config
from simdist.training.methods import recipe as of_config

PARAMETERS = Parameters([Parameter("w", (3, 2)), Parameter("b", (4,)), Parameter("v", (2, 5))])
WHOLE = Holding.of_all(PARAMETERS.size)


def stepped(recipe, gradient, steps=1):
    weights = np.linspace(1, 2, PARAMETERS.size)
    rule = recipe.rule(weights, PARAMETERS, WHOLE, alone)
    for _ in range(steps):
        rule.step(weights, gradient, 0.1)
    return weights


def test_the_names():
    assert optimizers() == ["sgd", "adam", "adamw", "adamw8bit", "lars", "lamb", "muon"]


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adamw8bit", "lamb"])
def test_matrices_decay_and_biases_do_not(name):
    plain, decayed = (
        stepped(Recipe(name, weight_decay=decay), np.ones(PARAMETERS.size), steps=3) for decay in (0.0, 0.5)
    )
    differs = plain != decayed
    assert not differs[6:10].any()
    assert differs[:6].all() and differs[10:].all()


@pytest.mark.parametrize("name", ["sgd", "lars"])
def test_momentum_is_told(name):
    one, other = (stepped(Recipe(name, momentum=m), np.ones(PARAMETERS.size), steps=2) for m in (0.0, 0.9))
    assert not np.allclose(one, other)


@pytest.mark.parametrize("name", ["adam", "adamw", "adamw8bit", "lamb"])
def test_betas_are_told(name):
    gradients = np.random.default_rng(0).standard_normal((2, PARAMETERS.size))

    def weights(betas):
        x = np.linspace(1, 2, PARAMETERS.size)
        rule = Recipe(name, betas=betas).rule(x, PARAMETERS, WHOLE, alone)
        for gradient in gradients:
            rule.step(x, gradient, 0.1)
        return x

    assert not np.allclose(weights((0.9, 0.999)), weights((0.5, 0.999)))
    assert not np.allclose(weights((0.9, 0.999)), weights((0.9, 0.5)))


def test_a_part_of_the_model_decays_where_the_whole_does():
    holding = Holding([slice(4, 8), slice(11, 13)])
    weights = np.zeros(holding.size)
    weights[...] = 1
    rule = Recipe("sgd", momentum=0.0, weight_decay=0.5).rule(weights, PARAMETERS, holding, alone)
    rule.step(weights, np.zeros(holding.size), 0.1)
    np.testing.assert_allclose(weights, [0.95, 0.95, 1, 1, 0.95, 0.95])


def test_shards_of_8_bit_state_begin_at_its_blocks():
    assert Recipe("adamw8bit").alignment > 1
    assert {Recipe(name).alignment for name in optimizers() if name != "adamw8bit"} == {1}


class Signs(Optimizer):
    """w ← w - rate · sign(m), where m ← β m + (1 - β) gradient."""

    def __init__(self, like, beta):
        super().__init__(like)
        self.beta, self.state = beta, {"m": np.zeros_like(like)}

    def _update(self, weights, gradient, rate, scale):
        m = self.state["m"]
        m[...] = self.beta * m + (1 - self.beta) * scale * gradient
        weights -= rate * np.sign(m)


@pytest.fixture
def signs(monkeypatch):
    monkeypatch.setattr(of_recipe, "_OPTIMIZERS", deepcopy(of_recipe._OPTIMIZERS))

    @optimizer("signs", learning_rate=0.01, momentum=0.5)
    def make(recipe, like, matrices, combine):
        return Signs(like, recipe.momentum)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_a_rule_of_ones_own_on_the_whole_and_on_shards(signs, zero_stage):
    windows = np.random.default_rng(0).integers(256, size=(6, 5), dtype=np.uint8)
    recipe = Recipe("signs", momentum=0.9, precision=precision("float64"))

    def trained(comm, zero_stage):
        model = mlp(context_bytes=4, embedding_width=4, hidden_width=8, hidden_layers=1)
        method = ZeRO(model, comm, recipe, 0, zero_stage) if zero_stage else DataParallel(model, comm, recipe, 0)
        for _ in range(3):
            method.backward(np.array_split(windows, comm.size)[comm.rank], 1 / windows.size)
            method.step(0.01)
        return method.loss(windows)

    alone = sd.run(trained, 1, args=(0,)).results
    assert sd.run(trained, 3, args=(zero_stage,)).results == pytest.approx(alone * 3, rel=1e-12)
    assert rule_bytes(recipe, 100) == 800


def test_a_rule_of_ones_own_in_a_training_run(signs):
    assert optimizers()[-1] == "signs"
    config = Config(optimizer="signs")  # whose class was there before the rule
    assert (config.learning_rate, config.momentum, config.beta1) == (0.01, 0.5, None)
    assert of_config(config).momentum == 0.5
    with pytest.raises(ArgumentError, match="beta1 is 0.5, and optimizer signs; beta1 is for optimizer adam"):
        Config(optimizer="signs", beta1=0.5)


@pytest.mark.parametrize(
    "cut", [{"model": "gpt", "tp": 2}, {"model": "gpt", "pp": 2}, {"method": "async", "servers": 2}]
)
def test_a_rule_can_ask_for_whole_matrices(signs, cut):
    Config(optimizer="signs", **cut)
    optimizer("signs", whole_matrices=True, learning_rate=0.01)(lambda *given: None)
    Config(optimizer="signs", model="gpt", zero=1)
    with pytest.raises(ArgumentError, match="optimizer (is )?signs"):
        Config(optimizer="signs", **cut)


def test_what_is_no_rule(signs):
    optimizer("signs", learning_rate=0.01)(lambda *given: {"state": {}})
    with pytest.raises(ArgumentError, match="what makes signs returns a dict; needs an Optimizer"):
        Recipe("signs").rule(np.zeros(20), PARAMETERS, WHOLE, alone)


def test_rules_that_need_the_whole_model():
    assert {name for name in optimizers() if Recipe(name).whole_model} == {"adamw8bit", "lars", "lamb"}


def test_defaults_of_what_no_rule_has():
    with pytest.raises(UnknownNameError, match="unknown default of optimizer x 'rate'"):
        optimizer("x", rate=0.1)


@pytest.mark.parametrize(
    ("defaults", "missing"),
    [({}, "learning_rate"), ({"beta1": 0.9, "beta2": 0.99}, "learning_rate"), ({"beta1": 0.9}, "learning_rate")]
    + [({"learning_rate": 0.1, one: 0.9}, other) for one, other in [("beta1", "beta2"), ("beta2", "beta1")]],
)
def test_defaults_that_every_rule_needs(defaults, missing):
    with pytest.raises(ArgumentError, match=f"optimizer x has no default of {missing}; needs learning_rate"):
        optimizer("x", **defaults)
    assert "x" not in optimizers()


def test_a_rule_without_decay_is_told_of_none(signs):
    assert of_config(Config(optimizer="signs")).weight_decay == 0.0


def test_limits():
    with pytest.raises(UnknownNameError, match="unknown optimizer 'adamw9bit'; did you mean 'adamw8bit'"):
        Recipe("adamw9bit")
    with pytest.raises(ArgumentError, match="max_norm is 0.0"):
        Recipe(max_norm=0.0)
    with pytest.raises(ArgumentError, match="momentum is 1.0"):
        Recipe("sgd", momentum=1.0).rule(np.zeros(20), PARAMETERS, WHOLE, alone)
