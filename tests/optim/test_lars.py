"""The oracle is the paper's algorithm 1, a layer at a time."""

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.optim import LARS

LAYERS = [slice(0, 300), slice(300, 301), slice(301, 900)]  # and 900 … 1000 in none


def test_it_follows_the_paper():
    rng = np.random.default_rng(0)
    w = rng.normal(size=1000)
    v = np.zeros(1000)
    ours, rule = w.copy(), LARS(w, LAYERS, momentum=0.8, trust=0.02, weight_decay=0.3, decay=[LAYERS[0], LAYERS[2]])
    for rate in (0.5, 0.4, 0.3, 0.2, 0.1):
        g = rng.normal(size=1000)
        rule.step(ours, g, rate)
        for span, beta in zip(LAYERS, (0.3, 0.0, 0.3), strict=True):
            local = 0.02 * np.linalg.norm(w[span]) / (np.linalg.norm(g[span]) + beta * np.linalg.norm(w[span]))
            v[span] = 0.8 * v[span] + rate * local * (g[span] + beta * w[span])
        v[900:] = 0.8 * v[900:] + rate * g[900:]
        w = w - v
    np.testing.assert_allclose(ours, w, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rule.state["velocity"], v, rtol=1e-12, atol=1e-14)


def test_the_size_of_the_gradient_does_not_matter():
    g = np.random.default_rng(1).normal(size=900)
    moved = []
    for scale in (1.0, 2.0**20):
        w = np.ones(900)
        LARS(w, LAYERS).step(w, scale * g, 1.0)
        moved.append(1 - w)
    np.testing.assert_array_equal(*moved)
    assert np.linalg.norm(moved[0][LAYERS[0]]) == pytest.approx(0.001 * 300**0.5)


def test_without_a_norm_it_is_sgd():
    w, g = np.zeros(1000), np.ones(1000)
    LARS(w, LAYERS).step(w, g, 0.5)
    np.testing.assert_array_equal(w, -0.5)
    w = np.ones(1000)
    LARS(w, LAYERS).step(w, np.zeros(1000), 0.5)
    np.testing.assert_array_equal(w, 1)


@pytest.mark.parametrize("wrong", [{"momentum": 1}, {"trust": 0}, {"weight_decay": -1}])
def test_arguments_have_limits(wrong):
    with pytest.raises(ArgumentError, match=f"{next(iter(wrong))} is"):
        LARS(np.zeros(3), [], **wrong)
