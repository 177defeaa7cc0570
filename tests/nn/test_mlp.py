"""The whole model against finite differences, and, where PyTorch is installed, against its autograd."""

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.nn import mlp

RNG = np.random.default_rng(11)


def small(dtype=np.float64):
    model = mlp(context_bytes=3, embedding_width=2, hidden_width=4, hidden_layers=2)
    size = model.parameters.size
    model.parameters.bind(np.empty(size, dtype), np.zeros(size, dtype))
    model.parameters.initialize(0)
    return model


def windows(n):
    return RNG.integers(256, size=(n, 4), dtype=np.uint8)


def test_gradient_against_finite_differences():
    model, batch = small(), windows(6)
    _, context = model.forward(batch)
    model.backward(context, 1 / 6)
    flat, gradient = model.parameters.data, model.parameters.gradient
    used = {i for byte in set(batch[:, :-1].ravel().tolist()) for i in (2 * byte, 2 * byte + 1)}
    others = range(model.parameters.spans["hidden0.w"].start, model.parameters.size)
    assert set(np.flatnonzero(gradient)) <= used | set(others)
    for i in sorted(used | set(RNG.choice(others, 150))):
        kept, values = flat[i], []
        for flat[i] in (kept + 1e-6, kept - 1e-6):
            values.append(model.forward(batch)[0] / 6)
        flat[i] = kept
        assert gradient[i] == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-8)


def test_untrained_it_takes_all_bytes_for_about_as_likely():
    total, _ = small().forward(windows(50))
    assert total / 50 == pytest.approx(np.log(256), abs=0.2)


def test_the_gradient_of_parts_adds_up_to_that_of_the_whole():
    model, batch = small(), windows(5)
    model.backward(model.forward(batch)[1], 1.0)
    whole = model.parameters.gradient.copy()
    model.parameters.gradient[...] = 0
    for part in (batch[:2], batch[2:2], batch[2:]):
        model.backward(model.forward(part)[1], 1.0)
    np.testing.assert_allclose(model.parameters.gradient, whole, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("sizes", [(0, 2, 4), (3, 0, 4), (3, 2, 0)])
def test_sizes_have_limits(sizes):
    with pytest.raises(ArgumentError, match="is 0|_width 0"):
        mlp(*sizes, hidden_layers=1)
    with pytest.raises(ArgumentError, match="hidden_layers is -1"):
        mlp(3, 2, 4, hidden_layers=-1)


def test_float32_stays_float32():
    model = small(np.float32)
    _, (layers, (p, *_)) = model.forward(windows(3))
    assert {x.dtype for x in (p, *layers[1:])} == {np.dtype(np.float32)}


def test_against_pytorch():
    torch = pytest.importorskip("torch")
    model, batch = small(), windows(6)
    total, context = model.forward(batch)
    model.backward(context, 1.0)
    table, w0, b0, w1, b1, w2, b2 = (torch.tensor(p.data, requires_grad=True) for p in model.parameters)
    x = table[torch.tensor(batch[:, :-1], dtype=torch.long)].reshape(6, -1)
    for w, b in ((w0, b0), (w1, b1)):
        x = torch.nn.functional.gelu(x @ w + b, approximate="tanh")
    targets = torch.tensor(batch[:, -1], dtype=torch.long)
    loss = torch.nn.functional.cross_entropy(x @ w2 + b2, targets, reduction="sum")
    loss.backward()
    assert total == pytest.approx(loss.item(), rel=1e-12)
    for mine, theirs in zip(model.parameters, (table, w0, b0, w1, b1, w2, b2), strict=True):
        np.testing.assert_allclose(mine.gradient, theirs.grad.numpy(), rtol=1e-10, atol=1e-12)
