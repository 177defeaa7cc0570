import numpy as np
import pytest

from simdist.errors import ArgumentError, ArrayError
from simdist.optim import SGD


@pytest.mark.parametrize("size", [0, 1, 5, 40_000])  # the last one is more than a block
def test_it_follows_the_rule(size):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=size)
    expected, velocity = weights.copy(), np.zeros(size)
    sgd = SGD(weights, momentum=0.75)
    for step in range(4):
        gradient, rate = rng.normal(size=size), 0.1 / (step + 1)
        kept = gradient.copy()
        sgd.step(weights, gradient, rate)
        velocity = 0.75 * velocity + kept
        expected = expected - rate * velocity
        np.testing.assert_array_equal(gradient, kept)
    np.testing.assert_allclose(weights, expected, rtol=1e-14)
    np.testing.assert_allclose(sgd.state["velocity"], velocity, rtol=1e-14)


def test_a_shard_at_a_time_gives_the_same_bits():
    rng = np.random.default_rng(1)
    whole, gradient = rng.normal(size=50_000), rng.normal(size=50_000)
    parts = whole.copy()
    SGD(whole).step(whole, gradient, 0.1)
    for span in (slice(0, 17_001), slice(17_001, 50_000)):
        SGD(parts[span]).step(parts[span], gradient[span], 0.1)
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_momentum_has_limits(momentum):
    with pytest.raises(ArgumentError, match="momentum is"):
        SGD(np.zeros(3), momentum)


def test_nesterov_needs_momentum():
    with pytest.raises(ArgumentError, match="nesterov with momentum 0"):
        SGD(np.zeros(3), 0, nesterov=True)


def test_lengths_must_fit():
    with pytest.raises(ArrayError, match=r"\(4,\)"):
        SGD(np.zeros(3)).step(np.zeros(3), np.zeros(4), 0.1)


@pytest.mark.parametrize("weight_decay", [0, 0.3])
def test_nesterov_steps_by_the_gradient_and_the_velocity_it_leads_to(weight_decay):
    rng = np.random.default_rng(2)
    weights = rng.normal(size=1000)
    decay = np.where(np.arange(1000) < 600, weight_decay, 0)
    expected, velocity = weights.copy(), np.zeros(1000)
    sgd = SGD(weights, 0.75, weight_decay=weight_decay, nesterov=True, decay=[slice(0, 600)])
    for step in range(4):
        gradient, rate = rng.normal(size=1000), 0.1 / (step + 1)
        sgd.step(weights, gradient, rate)
        penalized = gradient + decay * expected
        velocity = 0.75 * velocity + penalized
        expected = expected - rate * (penalized + 0.75 * velocity)
    np.testing.assert_allclose(weights, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("weight_decay", [0, 0.3])
def test_it_steps_as_pytorch_does(momentum, nesterov, weight_decay):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    weights = rng.normal(size=1000)
    theirs = [torch.nn.Parameter(torch.tensor(part)) for part in (weights[:600], weights[600:])]
    groups = [{"params": theirs[0], "weight_decay": weight_decay}, {"params": theirs[1], "weight_decay": 0}]
    oracle = torch.optim.SGD(groups, lr=0.01, momentum=momentum, nesterov=nesterov)
    sgd = SGD(weights, momentum, weight_decay=weight_decay, nesterov=nesterov, decay=[slice(0, 600)])
    for _ in range(50):
        gradient = rng.normal(size=1000)
        sgd.step(weights, gradient, 0.01)
        for parameter, part in zip(theirs, (gradient[:600], gradient[600:]), strict=True):
            parameter.grad = torch.tensor(part)
        oracle.step()
    expected = np.concatenate([parameter.detach().numpy() for parameter in theirs])
    np.testing.assert_allclose(weights, expected, rtol=1e-12, atol=1e-12)


def test_without_momentum_it_remembers_nothing():
    weights, gradient = np.ones(5), np.arange(5.0)
    sgd = SGD(weights, 0)
    for _ in range(2):
        sgd.step(weights, gradient, 0.25)
    np.testing.assert_array_equal(weights, 1 - 0.5 * gradient)
    assert sgd.state == {}


def test_what_decays():
    weights = np.ones(5)
    SGD(weights, weight_decay=0.5, decay=[slice(11, 13)], start=10).step(weights, np.zeros(5), 0.5)
    np.testing.assert_array_equal(weights, [1, 0.75, 0.75, 1, 1])
