"""Every operation's backward against finite differences in float64; values against independent formulas."""

import math

import numpy as np
import pytest

from simdist.arrays import Meter, metered
from simdist.nn import functional as f

RNG = np.random.default_rng(7)


def slope(value, x, step=1e-6):
    """The gradient of value() by x, which it reads: central differences, one entry at a time."""
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        kept = x[i]
        x[i] = kept + step
        above = value()
        x[i] = kept - step
        gradient[i] = (above - value()) / (2 * step)
        x[i] = kept
    return gradient


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_linear():
    x, w, b = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 4)), RNG.normal(size=4)
    weigh = RNG.normal(size=(5, 4))
    near(f.linear(x, w, b), np.einsum("ni,io->no", x, w) + b)

    def value():
        return float((f.linear(x, w, b) * weigh).sum())

    dw, db = np.zeros_like(w), np.zeros_like(b)
    f.linear_backward_weight(x, weigh, dw, db)
    near(f.linear_backward_input(weigh, w), slope(value, x))
    near(dw, slope(value, w))
    near(db, slope(value, b))


def test_weight_gradients_are_added():
    x, dy = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 4))
    dw, db = np.ones((3, 4)), np.ones(4)
    f.linear_backward_weight(x, dy, dw, db)
    near(dw, 1 + x.T @ dy)
    near(db, 1 + dy.sum(axis=0))
    table = np.ones((6, 4))
    f.embedding_backward(np.array([2, 2, 0, 5, 2], np.uint8), dy, table)
    expected = np.ones((6, 4))
    np.add.at(expected, [2, 2, 0, 5, 2], dy)
    near(table, expected)


def test_embedding():
    table, indices = RNG.normal(size=(256, 3)), np.array([[0, 255], [255, 7]], np.uint8)
    weigh = RNG.normal(size=(2, 2, 3))
    near(f.embedding(indices, table)[1, 0], table[255])
    dtable = np.zeros_like(table)
    f.embedding_backward(indices, weigh, dtable)
    near(dtable, slope(lambda: float((f.embedding(indices, table) * weigh).sum()), table))


def test_gelu():
    x, weigh = RNG.normal(size=(4, 6)) * 3, RNG.normal(size=(4, 6))
    y, t = f.gelu(x)
    near(y, [[v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in row] for row in x])
    near(f.gelu_backward(x, t, weigh), slope(lambda: float((f.gelu(x)[0] * weigh).sum()), x))


def test_cross_entropy():
    logits, targets = RNG.normal(size=(6, 5)), np.array([0, 4, 2, 2, 1, 3], np.uint8)
    total, p = f.cross_entropy(logits, targets)
    near(p.sum(axis=1), np.ones(6))
    near(total, sum(math.log(sum(math.exp(v) for v in row)) - row[t] for row, t in zip(logits, targets, strict=True)))
    near(f.cross_entropy_backward(p, targets, 0.25), slope(lambda: f.cross_entropy(logits, targets)[0] / 4, logits))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy_is_stable_row_by_row(dtype):
    logits = np.array([[0, 0], [1e30, 1e30], [-1e30, 0], [2000, 1000]], dtype)
    total, p = f.cross_entropy(logits, np.array([0, 1, 1, 0]))
    assert total == pytest.approx(2 * math.log(2))
    np.testing.assert_array_equal(p, np.array([[0.5, 0.5], [0.5, 0.5], [0, 1], [1, 0]], dtype))
    assert p.dtype == dtype


def test_nothing_to_do_is_done():
    nothing = np.empty((0, 3))
    dw, db, dtable = np.zeros((3, 2)), np.zeros(2), np.zeros((4, 3))
    assert f.linear(nothing, dw, db).shape == (0, 2)
    f.linear_backward_weight(nothing, np.empty((0, 2)), dw, db)
    f.embedding_backward(np.empty((0, 1), np.uint8), nothing, dtable)
    assert not dw.any()
    assert not dtable.any()
    total, p = f.cross_entropy(nothing, np.empty(0, np.uint8))
    assert (total, p.shape) == (0.0, (0, 3))


def test_a_matrix_product_is_charged():
    x, w, b = np.ones((5, 3), np.float32), np.ones((3, 4), np.float32), np.ones(4, np.float32)
    meter = Meter()
    with metered(meter):
        f.linear(x, w, b)
    assert meter.flops == 2 * 5 * 3 * 4 + 5 * 4
    assert meter.bytes == 4 * ((15 + 12 + 20) + (20 + 20 + 4))
