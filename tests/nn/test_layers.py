import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.nn import Embedding, Gelu, Linear, Parameters, Sequence
from simdist.nn.layers import (
    Attention,
    Dropout,
    LayerNorm,
    QKNorm,
    Recompute,
    Residual,
    RMSNorm,
    Rotary,
    SwiGLU,
    TextEmbedding,
)

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


LAYERS = {
    "linear": Linear("l", 6, 3),
    "two side by side": Linear("l", 6, (2, 3), bias=False),
    "gelu": Gelu(),
    "swiglu": SwiGLU(),
    "rotary": Rotary(1),
    "queries and keys": QKNorm("q", 1, 1, 2),
    "root of mean square": RMSNorm("n", 6),
    "norm": LayerNorm("n", 6),
    "attention": Attention("a", 2),
    "dropout": Dropout("d", 0.5),
    "residual": Residual(Linear("l", 6, 6)),
    "recompute": Recompute(Linear("l", 6, 3)),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=list(LAYERS))
def test_both_backwards_give_the_same_and_change_nothing_they_were_given(layer):
    own = Parameters(layer.parameters)
    own.bind(RNG.normal(size=own.size), np.zeros(own.size))
    x = RNG.normal(size=(2, 5, 6))
    y, context = layer.forward(x)
    dy = RNG.normal(size=y.shape)
    copies = x.copy(), dy.copy()
    dx, pending = layer.backward_input(context, dy)
    assert not own.gradient.any()
    layer.backward_weight(context, pending)
    halves = own.gradient.copy()
    own.gradient[...] = 0
    np.testing.assert_array_equal(layer.backward(layer.forward(x)[1], dy), dx)
    np.testing.assert_array_equal(own.gradient, halves)
    np.testing.assert_array_equal(x, copies[0])
    np.testing.assert_array_equal(dy, copies[1])


def test_maps_side_by_side_have_no_bias():
    with pytest.raises(ArgumentError, match=r"out_features is \(2, 3\) and there is a bias"):
        Linear("l", 6, (2, 3))


def test_integers_have_no_derivative():
    layer = TextEmbedding("t", 7, 4, 3, 1.0)
    own = Parameters(layer.parameters)
    own.bind(RNG.normal(size=own.size), np.zeros(own.size))
    tokens = np.array([[1, 1, 6], [0, 1, 2]], np.uint8)
    y, context = layer.forward(tokens)
    np.testing.assert_array_equal(y[1, 2], layer.tokens.data[2] + layer.places.data[2])
    dx = layer.backward(context, np.ones_like(y))
    assert dx.size == 0
    assert dx.base is None, "a view would keep dy"
    np.testing.assert_array_equal(layer.tokens.gradient[:, 0], [1, 3, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(layer.places.gradient[:, 0], [2, 2, 2, 0])


def test_a_shared_parameter_is_listed_once_and_completed_last():
    one = Linear("one", 3, 3)
    layers = Sequence([one, Gelu(), one, Linear("two", 3, 2, bias=False)])
    assert [p.name for p in layers.parameters] == ["one.w", "one.b", "two.w"]
    assert [[p.name for p in own] for own in layers.completes] == [["one.w", "one.b"], [], [], ["two.w"]]


def test_backward_lets_go_of_what_it_has_used():
    layers, _ = stack()
    x, dy = batch()
    _, context = layers.forward(x)
    layers.backward(context, dy)
    assert context == []
