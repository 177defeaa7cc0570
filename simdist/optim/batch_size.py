"""Batch size: what a larger batch costs and gains, and the learning rate that goes with it."""

import math
from typing import NamedTuple

from simdist.errors import ArgumentError, as_declared, require_known, require_least, require_more, require_share

__all__ = ["BatchTrade", "batch_trade", "critical_tokens", "noise_scale", "scaled_learning_rate", "sgd_noise"]


@as_declared
def scaled_learning_rate(
    global_batch_size: int, learning_rate: float = 0.1, batch_size: int = 256, rule: str = "linear"
) -> float:
    """The learning rate for a global batch of kn on k workers, scaled from the rate for a batch of `batch_size`.

    With k times the batch, one step replaces k steps, so its rate is k times as high: 0.1 · kn/256 for ResNet-50.
    Early in training that is too high, so warm up: `Schedule(peak=…, start=learning_rate, warmup_steps=…)`.

    Args:
        rule: "linear"; or "sqrt", used with LAMB: times the root of k.

    Raises:
        ArgumentError: a batch size is not at least 1.
        UnknownNameError: there is no such rule.

    Source: Goyal et al. 2017, arXiv 1706.02677, sections 2.1 and 5.1; the root, You et al. 2020, arXiv 1904.00962, for
    LAMB without tuning.
    """
    powers = {"linear": 1.0, "sqrt": 0.5}
    require_known("rule", rule, powers)
    require_least("global_batch_size", global_batch_size, 1)
    require_least("batch_size", batch_size, 1)
    return learning_rate * math.pow(global_batch_size / batch_size, powers[rule])


class BatchTrade(NamedTuple):
    """What a batch of B costs and gains.

    Attributes:
        steps: as a multiple of those that the largest batches need, 1 + B_noise/B.
        samples: as a multiple of those that the smallest batches need, 1 + B/B_noise.
        learning_rate: the best one, as a share of that of the largest batches, 1 / (1 + B_noise/B).
    """

    steps: float
    samples: float
    learning_rate: float


@as_declared
def batch_trade(batch_size: float, noise_scale: float) -> BatchTrade:
    """How much data parallelism pays: (steps - 1)(samples - 1) = 1, where both are multiples of the least.

    Far below the noise scale a batch twice as large halves the steps, with the same samples; far above it the steps
    stay, and the samples double. At the noise scale, the critical batch size, both are twice the least.

    Of two batches the ratio of their steps is AdaScale's gain, that of their samples the efficiency in Pollux.

    Args:
        batch_size: B, of all ranks together.
        noise_scale: B_noise; nearly tr Σ / |G|², of the mean gradient G and the covariance Σ of a sample's: see
            the function `noise_scale`.

    Raises:
        ArgumentError: a number is not above 0.

    Source: McCandlish, Kaplan, Amodei 2018, arXiv 1812.06162, section 2, for SGD; Johnson et al. 2020, ICML (AdaScale);
    Qiao et al. 2021, OSDI (Pollux).
    """
    require_more("batch_size", batch_size, 0)
    require_more("noise_scale", noise_scale, 0)
    steps = 1 + noise_scale / batch_size
    return BatchTrade(steps, 1 + batch_size / noise_scale, 1 / steps)


@as_declared
def critical_tokens(loss: float, scale: float = 2e8, exponent: float = 0.21) -> float:
    """B* / L^(1/α): the critical batch size of a language model at this loss, in tokens; 1.07 million at 3.

    It depends on the loss alone, not on the size of the model, and doubles while the loss falls by 13%.

    Args:
        loss: L, nats for each token.
        scale, exponent: B* in tokens, and α.

    Raises:
        ArgumentError: a number is not above 0.

    Source: Kaplan et al. 2020, arXiv 2001.08361, equation 1.4.
    """
    for name, number in (("loss", loss), ("scale", scale), ("exponent", exponent)):
        require_more(name, number, 0)
    return scale / math.pow(loss, 1 / exponent)


@as_declared
def noise_scale(small_size: float, small_squared: float, large_size: float, large_squared: float) -> float:
    """(s - l) / (l/b - s/B): the noise scale tr Σ / |G|², from the lengths of gradients of two batch sizes.

    A gradient of B samples has |G|² + tr Σ / B as its mean squared length. In data parallelism both come for nothing:
    each rank's own gradient, of b samples, and the mean of all, of B.

    Args:
        small_size, large_size: b and B.
        small_squared, large_squared: s and l, the squared lengths of such gradients, each averaged over many steps.

    Raises:
        ArgumentError: b is not above 0, B not above b, l above s, or the gradients so short that all would be noise.

    Source: McCandlish, Kaplan, Amodei 2018, arXiv 1812.06162, appendix A.1: the ratio of its two estimates.
    """
    require_more("small_size", small_size, 0)
    require_more("large_size", large_size, small_size)
    require_least("small_squared", small_squared, large_squared)
    signal = large_squared / small_size - small_squared / large_size
    if not signal > 0:
        told = f"squared lengths are {small_squared} of {small_size} samples and {large_squared} of {large_size}"
        limit = f"more than {small_squared * small_size / large_size} of {large_size}: averages over more steps"
        raise ArgumentError(f"{told}; needs {limit}")
    return (small_squared - large_squared) / signal


@as_declared
def sgd_noise(learning_rate: float, batch_size: float, samples: float, momentum: float = 0.0) -> float:
    """η (N/B - 1) / (1-m): how much SGD's steps differ from those along the gradient of all samples.

    Training with the same noise is nearly the same: a larger batch replaces a lower rate, or goes with a higher one.
    It is not `noise_scale`, which depends on the gradients alone.

    Args:
        learning_rate, momentum: η and m.
        batch_size, samples: B and N, of the whole data.

    Raises:
        ArgumentError: η is below 0, m not from 0 to less than 1, or B not from 1 to N.

    Source: Smith, Kindermans, Ying, Le 2018, arXiv 1711.00489, section 2.
    """
    require_least("learning_rate", learning_rate, 0)
    require_share("momentum", momentum)
    require_least("batch_size", batch_size, 1)
    require_least("samples", samples, batch_size)
    return learning_rate * (samples / batch_size - 1) / (1 - momentum)
