"""The oracles are PyTorch, where it is installed, and the paper's algorithm 1."""

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.optim import Adam

SIZE, CUT = 1000, 600


def gradients(steps):
    rng = np.random.default_rng(3)
    return rng.normal(size=(steps, SIZE)) * 10.0 ** rng.uniform(-6, 2, size=SIZE)


@pytest.mark.parametrize("weight_decay", [0, 0.3])
def test_it_follows_the_paper(weight_decay):
    w = np.random.default_rng(0).normal(size=SIZE)
    ours = w.copy()
    rule = Adam(w, betas=(0.8, 0.95), epsilon=1e-3, weight_decay=weight_decay, decay=[slice(0, CUT)])
    m, v, penalty = np.zeros(SIZE), np.zeros(SIZE), np.where(np.arange(SIZE) < CUT, weight_decay, 0)
    for t, g in enumerate(gradients(10), start=1):
        rule.step(ours, g, 0.02)
        g = g + penalty * w
        m = 0.8 * m + (1 - 0.8) * g
        v = 0.95 * v + (1 - 0.95) * g**2
        w = w - 0.02 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-3)
    np.testing.assert_allclose(ours, w, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rule.state["m"], m, rtol=1e-12)
    np.testing.assert_allclose(rule.state["v"], v, rtol=1e-12)


@pytest.mark.parametrize("weight_decay", [0, 0.3])
def test_it_steps_as_pytorch_does(weight_decay):
    torch = pytest.importorskip("torch")
    w = np.random.default_rng(0).normal(size=SIZE)
    theirs = [torch.nn.Parameter(torch.tensor(part)) for part in (w[:CUT], w[CUT:])]
    groups = [{"params": theirs[0], "weight_decay": weight_decay}, {"params": theirs[1], "weight_decay": 0}]
    oracle = torch.optim.Adam(groups, lr=0.01)
    rule = Adam(w, weight_decay=weight_decay, decay=[slice(0, CUT)])
    for g in gradients(50):
        rule.step(w, g, 0.01)
        for parameter, part in zip(theirs, (g[:CUT], g[CUT:]), strict=True):
            parameter.grad = torch.tensor(part)
        oracle.step()
    expected = np.concatenate([parameter.detach().numpy() for parameter in theirs])
    np.testing.assert_allclose(w, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"betas": (1.0, 0.9)}, r"betas\[0\] is 1.0"),
        ({"betas": (0.9, -0.1)}, r"betas\[1\] is -0.1"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
    ],
)
def test_moments_have_limits(wrong, message):
    with pytest.raises(ArgumentError, match=message):
        Adam(np.zeros(3), **wrong)
