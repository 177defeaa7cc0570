"""The oracles are PyTorch, where it is installed, and the paper's algorithm 2."""

import numpy as np
import pytest

from simdist.optim import AdamW, Schedule

SIZE, CUT = 1000, 600


def gradients(steps):
    rng = np.random.default_rng(3)
    return rng.normal(size=(steps, SIZE)) * 10.0 ** rng.uniform(-6, 2, size=SIZE)


def test_it_follows_the_paper():
    w = np.random.default_rng(0).normal(size=SIZE)
    ours, rule = w.copy(), AdamW(w, weight_decay=0.2, decay=[slice(0, CUT)])
    m, v, decay = np.zeros(SIZE), np.zeros(SIZE), np.where(np.arange(SIZE) < CUT, 0.2, 0)
    for t, g in enumerate(gradients(10), start=1):
        rule.step(ours, g, 0.02)
        m = 0.9 * m + (1 - 0.9) * g
        v = 0.999 * v + (1 - 0.999) * g**2
        w = w - 0.02 * ((m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + decay * w)
    np.testing.assert_allclose(ours, w, rtol=1e-12, atol=1e-14)


def test_it_steps_as_pytorch_does():
    torch = pytest.importorskip("torch")
    w = np.random.default_rng(0).normal(size=SIZE)
    theirs = [torch.nn.Parameter(torch.tensor(part)) for part in (w[:CUT], w[CUT:])]
    groups = [{"params": theirs[0], "weight_decay": 0.1}, {"params": theirs[1], "weight_decay": 0}]
    oracle = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-3)
    rule = AdamW(w, betas=(0.9, 0.95), epsilon=1e-3, weight_decay=0.1, decay=[slice(0, CUT)])
    schedule = Schedule(0.01, 50, warmup_steps=5)
    for step, g in enumerate(gradients(50)):
        rule.step(w, g, schedule(step))
        for group, part in zip(oracle.param_groups, (g[:CUT], g[CUT:]), strict=True):
            group["lr"] = schedule(step)
            group["params"][0].grad = torch.tensor(part)
        oracle.step()
    expected = np.concatenate([parameter.detach().numpy() for parameter in theirs])
    np.testing.assert_allclose(w, expected, rtol=1e-12, atol=1e-12)
    for name, theirs_name in (("m", "exp_avg"), ("v", "exp_avg_sq")):
        found = np.concatenate([oracle.state[parameter][theirs_name].numpy() for parameter in theirs])
        np.testing.assert_allclose(rule.state[name], found, rtol=1e-12)
