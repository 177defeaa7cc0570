import numpy as np
import pytest

from simdist.nn import Embedding, Gelu, Linear, Parameters, Sequence

RNG = np.random.default_rng(3)


def stack():
    """Bytes to three numbers: every kind of layer, one inside another."""
    layers = Sequence([Embedding("e", 256, 2), Sequence([Linear("a", 6, 5), Gelu()]), Linear("b", 5, 3)])
    parameters = Parameters(layers.parameters)
    parameters.bind(np.empty(parameters.size), np.zeros(parameters.size))
    parameters.initialize(1)
    return layers, parameters


def batch():
    return RNG.integers(256, size=(4, 3), dtype=np.uint8), RNG.normal(size=(4, 3))


def gradient_of(x, dy):
    layers, parameters = stack()
    layers.backward(layers.forward(x)[1], dy)
    return parameters.gradient.copy()


def test_batches_may_be_in_flight_together():
    layers, parameters = stack()
    (x1, dy1), (x2, dy2) = batch(), batch()
    _, context1 = layers.forward(x1)
    _, context2 = layers.forward(x2)
    layers.backward(context1, dy1)
    layers.backward(context2, dy2)
    np.testing.assert_allclose(parameters.gradient, gradient_of(x1, dy1) + gradient_of(x2, dy2), rtol=1e-13)


def test_the_halves_of_backward_make_the_whole():
    layers, parameters = stack()
    (x1, dy1), (x2, dy2) = batch(), batch()
    contexts = [layers.forward(x)[1] for x in (x1, x2)]
    pending = [layers.backward_input(c, dy)[1] for c, dy in zip(contexts, (dy1, dy2), strict=True)]
    assert not parameters.gradient.any(), "weight gradients are for the other half"
    for context, rest in zip(contexts, pending, strict=True):
        layers.backward_weight(context, rest)
    np.testing.assert_allclose(parameters.gradient, gradient_of(x1, dy1) + gradient_of(x2, dy2), rtol=1e-13)


@pytest.mark.parametrize("layer", [Linear("l", 4, 3), Gelu()], ids=["linear", "gelu"])
def test_both_backwards_give_the_same_input_gradient(layer):
    if layer.parameters:
        Parameters(layer.parameters).bind(RNG.normal(size=15), np.zeros(15))
    x = RNG.normal(size=(5, 4))
    y, context = layer.forward(x)
    dy = RNG.normal(size=y.shape)
    np.testing.assert_array_equal(layer.backward(context, dy), layer.backward_input(context, dy)[0])
