"""Calibration: a cluster whose alpha, beta and gamma were measured."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from simdist.cluster.cluster import Cluster
from simdist.cluster.link import Link
from simdist.cluster.presets import preset
from simdist.errors import ArgumentError

__all__ = ["calibrated", "fit_link"]

_LEAST_LATENCY_S = 1e-8
_MOST_BYTES_PER_S = 1e13


def fit_link(messages: Iterable[tuple[int, float]]) -> Link:
    """The link whose alpha + n * beta best fits the times of messages of n bytes.

    Least squares of the relative error, because a fit of the absolute one would be dominated by the longest
    messages and leave alpha to chance. Neither alpha nor beta is below what can be measured.

    Args:
        messages: (bytes, seconds) of at least two sizes.

    Raises:
        ArgumentError: fewer than two sizes, or a time that is not positive.
    """
    size, seconds = np.array(sorted(messages), dtype=float).reshape(-1, 2).T
    if len(set(size)) < 2:
        raise ArgumentError(f"a link is fitted to messages of at least two sizes; got {sorted(set(size.tolist()))}")
    if not seconds.min() > 0:  # NaN, too
        raise ArgumentError(f"a message took {seconds.min()} s; needs more than 0")
    terms = np.stack([1 / seconds, size / seconds], axis=1)
    alpha_s, beta_s = np.linalg.lstsq(terms, np.ones(len(size)), rcond=None)[0]
    return Link(max(float(alpha_s), _LEAST_LATENCY_S), 1 / max(float(beta_s), 1 / _MOST_BYTES_PER_S))


def calibrated(
    inside: Iterable[tuple[int, float]],
    reductions: Iterable[tuple[int, float]],
    between: Iterable[tuple[int, float]] = (),
) -> Cluster:
    """'this-machine' with its links and its memory as measured.

    Args:
        inside: (bytes, seconds) from one rank to another on the same node.
        reductions: (bytes of one operand, seconds) of x += y.
        between: as `inside`, to another node. Without times of one of the two, both are like the other.
    """
    guess, inside, between = preset("this-machine"), list(inside), list(between)
    device = replace(guess.device, memory_bytes_per_s=3 * fit_link(reductions).bytes_per_s)
    links = {"inside": fit_link(inside or between), "between": fit_link(between or inside)}
    return guess.with_(name="this-machine (measured)", device=device, **links)
