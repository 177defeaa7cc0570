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


def test_lengths_must_fit():
    with pytest.raises(ArrayError, match=r"\(4,\)"):
        SGD(np.zeros(3)).step(np.zeros(3), np.zeros(4), 0.1)
