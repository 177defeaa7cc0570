import math

import numpy as np
import pytest

from simdist.errors import ArgumentError, UnknownNameError
from simdist.optim import SGD, batch_trade, critical_tokens, noise_scale, scaled_learning_rate, sgd_noise


def test_batches_as_you_et_al_trained_by_lamb():
    """From 5/10³ at 32,768 by the root: 5/(2³ 10³) at 512, and half of a power of two less at each in between."""
    found = [scaled_learning_rate(512 << i, 0.005, 32768, rule="sqrt") for i in range(7)]
    assert found == pytest.approx([5 / (2 ** (3 - i / 2) * 1e3) for i in range(7)])


@pytest.mark.parametrize("sizes", [{"global_batch_size": math.nan}, {"global_batch_size": 512, "batch_size": 0}])
def test_a_batch_of_no_size_is_refused(sizes):
    name, size = list(sizes.items())[-1]
    with pytest.raises(ArgumentError, match=f"^{name} is {size}; needs at least"):
        scaled_learning_rate(**sizes)


def test_at_the_critical_batch_size_steps_and_samples_are_twice_the_least():
    assert batch_trade(1000, 1000) == (2, 2, 0.5)
    for batch_size in (1, 300, 1e6):
        trade = batch_trade(batch_size, 1000)
        assert (trade.steps - 1) * (trade.samples - 1) == pytest.approx(1)
        assert trade.samples / trade.steps == pytest.approx(batch_size / 1000)
    with pytest.raises(ArgumentError, match="noise_scale is 0"):
        batch_trade(1, 0)


@pytest.mark.parametrize("times", [1, 4, 64])
def test_the_gain_of_adascale_and_the_efficiency_of_pollux(times):
    """(σ² + μ²) / (σ²/S + μ²) of S batches of variance σ², and (φ + M₀) / (φ + M)."""
    batch, noise, squared = 32, 4800.0, 3.0
    small, large = batch_trade(batch, noise / squared), batch_trade(times * batch, noise / squared)
    variance = noise / batch
    assert small.steps / large.steps == pytest.approx((variance + squared) / (variance / times + squared))
    assert small.samples / large.samples == pytest.approx((1600 + batch) / (1600 + times * batch))


def test_the_critical_batch_of_a_language_model():
    """Kaplan et al. 2020: one to two million tokens for the largest models; twice as much at 13% less loss."""
    assert critical_tokens(3.0) == pytest.approx(1.07e6, rel=0.005)
    assert 1e6 < critical_tokens(2.8) < 2e6
    assert critical_tokens(0.865 * 3.0) == pytest.approx(2 * critical_tokens(3.0), rel=0.01)
    assert critical_tokens(1.0) == 2e8
    with pytest.raises(ArgumentError, match="loss is 0; needs more than 0"):
        critical_tokens(0)


@pytest.mark.parametrize("batch_size", [1, 5, 40])
def test_the_best_step_on_a_noisy_bowl(batch_size):
    """Of |w|²/2: from w by a step of η the loss falls by η|w|² - η²/2 (|w|² + tr Σ / B), on average."""
    squared, noise = 3.0, 24.0
    rates = np.linspace(0, 1, 10_001)
    falls = rates * squared - rates**2 / 2 * (squared + noise / batch_size)
    trade = batch_trade(batch_size, noise / squared)
    assert rates[falls.argmax()] == pytest.approx(trade.learning_rate, abs=1e-4)
    assert falls.max() == pytest.approx(squared / 2 / trade.steps, rel=1e-6)


def test_the_noise_scale_follows_from_the_lengths_of_gradients():
    squared, noise = 3.0, 24.0
    lengths = {size: squared + noise / size for size in (2, 5, 64)}
    for b, large in ((2, 5), (2, 64), (5, 64)):
        assert noise_scale(b, lengths[b], large, lengths[large]) == pytest.approx(noise / squared)
    signal, spread = (1 / (64 - 2)) * (64 * lengths[64] - 2 * lengths[2]), (lengths[2] - lengths[64]) / (1 / 2 - 1 / 64)
    assert noise_scale(2, lengths[2], 64, lengths[64]) == pytest.approx(spread / signal)  # as in the paper
    for wrong, message in (
        ((0, 1, 2, 1), "small_size is 0; needs more than 0"),
        ((2, 1, 2, 1), "large_size is 2; needs more than 2"),
        ((1, 1, 2, 3), "small_squared is 1; needs at least 3"),  # or the noise would be below 0
        ((1, 8, 4, 2), "8 of 1 samples and 2 of 4; needs more than 2.0 of 4"),
    ):
        with pytest.raises(ArgumentError, match=message):
            noise_scale(*wrong)


def test_ranks_that_average_gradients_see_the_noise_scale():
    ranks, samples, steps = 8, 4, 4000
    each = np.array([3.0, 0.0, 4.0]) + 5 * np.random.default_rng(0).normal(size=(steps, ranks, samples, 3))
    own = each.mean(axis=2)
    small, large = (own**2).sum(axis=2).mean(), (own.mean(axis=1) ** 2).sum(axis=1).mean()
    assert noise_scale(samples, small, ranks * samples, large) == pytest.approx(3 * 5**2 / 25, rel=0.05)


def test_rates_have_limits():
    with pytest.raises(UnknownNameError, match="unknown rule 'root'. There are: linear, sqrt"):
        scaled_learning_rate(512, rule="root")
    with pytest.raises(ArgumentError, match="global_batch_size is 0; needs at least 1"):
        scaled_learning_rate(0)


@pytest.mark.parametrize(("rate", "batch", "momentum"), [(0.05, 1, 0.0), (0.05, 4, 0.0), (0.02, 4, 0.9)])
def test_weights_spread_by_the_noise_of_sgd(rate, batch, momentum):
    """Around the least of x²/2, in many weights at once: by g tr Σ / 2N, where rates are low and N is large."""
    rng, samples = np.random.default_rng(0), 10**9
    x = np.zeros(20_000)
    rule = SGD(x, momentum=momentum)
    for _ in range(600):
        rule.step(x, x + rng.normal(size=x.size) / batch**0.5, rate)
    assert x.var() == pytest.approx(sgd_noise(rate, batch, samples, momentum) / (2 * samples), rel=0.06)


def test_batches_in_place_of_rates():
    """arXiv 1711.00489: instead of a rate that decays by 5, a batch that grows by 5; without noise all at once."""
    assert sgd_noise(0.1 / 5, 128, 5e7, 0.9) == pytest.approx(sgd_noise(0.1, 5 * 128, 5e7, 0.9), rel=1e-4)
    assert sgd_noise(0.1, 128, 5e4, 0.9) == pytest.approx(10 * sgd_noise(0.1, 128, 5e4))
    assert sgd_noise(0.1, 5e4, 5e4) == 0
    for wrong, message in (((-1, 1, 2), "learning_rate"), ((1, 0, 2), "batch_size"), ((1, 3, 2), "samples is 2")):
        with pytest.raises(ArgumentError, match=message):
            sgd_noise(*wrong)
    with pytest.raises(ArgumentError, match="momentum is 1"):
        sgd_noise(1, 1, 2, 1)
