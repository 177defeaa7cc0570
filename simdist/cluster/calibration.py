"""Calibration: a cluster whose alpha, beta and gamma were measured."""

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from simdist.cluster.cluster import Cluster
from simdist.cluster.link import Link
from simdist.cluster.presets import preset
from simdist.errors import ArgumentError

__all__ = ["calibrated", "fit_link"]

_LEAST_LATENCY_S = 1e-8
_MOST_BYTES_PER_S = 1e13


def fit_link(messages: Iterable[tuple[int, float]]) -> Link:
    """The link whose alpha + n * beta best fits the times of messages of n bytes.

    Of the lines through two of the messages it is the one with the least sum of |log(time / predicted time)|. So a
    message of any length counts the same, twice too long is as wrong as half as long, and one that met other work does
    not matter. Neither alpha nor beta is below what can be measured.

    Args:
        messages: (bytes, seconds) of at least two sizes.

    Raises:
        ArgumentError: fewer than two sizes, or a time that is not positive.
    """
    known = sorted(messages)
    if len(sizes := sorted({size for size, _ in known})) < 2:
        raise ArgumentError(f"a link is fitted to messages of at least two sizes; got {sizes}")
    for _, seconds in known:
        if not seconds > 0:  # NaN, too
            raise ArgumentError(f"a message took {seconds} s; needs more than 0")
    pairs = [(one, other) for one, other in combinations(known, 2) if one[0] < other[0]]
    return min((_through(*pair) for pair in pairs), key=lambda link: _distance(link, known))


def _through(one: tuple[int, float], other: tuple[int, float]) -> Link:
    """The link on which both messages take their time, if there is one; the first is the shorter."""
    (n, time_s), (m, longer_s) = one, other
    beta_s = max((longer_s - time_s) / (m - n), 1 / _MOST_BYTES_PER_S)
    return Link(max(time_s - n * beta_s, _LEAST_LATENCY_S), 1 / beta_s)


def _distance(link: Link, messages: Iterable[tuple[int, float]]) -> float:
    return sum(abs(math.log(seconds / link.seconds(n))) for n, seconds in messages)


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
