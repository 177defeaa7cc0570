import numpy as np
import pytest

from simdist.errors import ArgumentError, UnknownNameError
from simdist.nn.parameters import Parameter, Parameters
from simdist.optim.norm import alone
from simdist.parallel import Recipe, optimizers
from simdist.parallel.holding import Holding

PARAMETERS = Parameters([Parameter("w", (3, 2)), Parameter("b", (4,)), Parameter("v", (2, 5))])
WHOLE = Holding.of_all(PARAMETERS.size)


def stepped(recipe, gradient, steps=1):
    weights = np.linspace(1, 2, PARAMETERS.size)
    rule = recipe.rule(weights, PARAMETERS, WHOLE, alone)
    for _ in range(steps):
        rule.step(weights, gradient, 0.1)
    return weights


def test_the_names():
    assert optimizers() == ["sgd", "adam", "adamw", "adamw8bit", "lars", "lamb"]


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


def test_limits():
    with pytest.raises(UnknownNameError, match="unknown optimizer 'adamw9bit'; did you mean 'adamw8bit'"):
        Recipe("adamw9bit")
    with pytest.raises(ArgumentError, match="max_norm is 0.0"):
        Recipe(max_norm=0.0)
    with pytest.raises(ArgumentError, match="momentum is 1.0"):
        Recipe("sgd", momentum=1.0).rule(np.zeros(20), PARAMETERS, WHOLE, alone)
