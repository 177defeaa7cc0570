"""The oracle is the paper's algorithm 2, a layer at a time."""

import numpy as np
import pytest

from simdist.optim import LAMB, AdamW

LAYERS = [slice(0, 300), slice(300, 301), slice(301, 900)]  # and 900 … 1000 in none


def test_it_follows_the_paper():
    rng = np.random.default_rng(0)
    w = rng.normal(size=1000)
    m, v = np.zeros(1000), np.zeros(1000)
    ours, rule = w.copy(), LAMB(w, LAYERS, betas=(0.8, 0.95), weight_decay=0.3, decay=[LAYERS[0], LAYERS[2]])
    decay = np.zeros(1000)
    decay[LAYERS[0]] = decay[LAYERS[2]] = 0.3
    for t, rate in enumerate((0.05, 0.04, 0.03, 0.02, 0.01), start=1):
        g = rng.normal(size=1000)
        rule.step(ours, g, rate)
        m = 0.8 * m + (1 - 0.8) * g
        v = 0.95 * v + (1 - 0.95) * g**2
        u = (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-6) + decay * w
        for span in LAYERS:
            u[span] *= np.linalg.norm(w[span]) / np.linalg.norm(u[span])
        w = w - rate * u
    np.testing.assert_allclose(ours, w, rtol=1e-12, atol=1e-14)


def test_a_layer_moves_by_its_share():
    rng = np.random.default_rng(1)
    before = rng.normal(size=900)
    after = before.copy()
    LAMB(after, LAYERS).step(after, rng.normal(size=900), 0.125)
    for span in LAYERS:
        moved = np.linalg.norm(after[span] - before[span])
        assert moved == pytest.approx(0.125 * np.linalg.norm(before[span]), rel=1e-12)


def test_without_a_norm_it_is_adamw():
    g = np.random.default_rng(1).normal(size=900)
    ours, theirs = np.zeros(900), np.zeros(900)
    LAMB(ours, LAYERS, epsilon=1e-8).step(ours, g, 0.1)
    AdamW(theirs).step(theirs, g, 0.1)
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    w = np.ones(900)
    LAMB(w, LAYERS, weight_decay=0).step(w, np.zeros(900), 0.1)
    np.testing.assert_array_equal(w, 1)
