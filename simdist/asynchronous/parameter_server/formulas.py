"""Formulas: what staleness costs, and what passes through the links of workers that are servers, too.

T  updates, of all workers together      P  workers      s  the staleness allowed      t  an update, from 1
L  the most that a loss changes, per unit of distance    F  ½‖x - x'‖² is at most F² for any two weights

If the losses f_t are convex, and update t has the learning rate η_t = σ / √t, with σ = F / (L √(2(s+1)P)), then

    1/T Σ f_t(x̃_t) - f(x*)  ≤  4 F L √(2(s+1)P / T)        x̃_t: the weights as its worker had read them

So as many times more updates are needed as s + 1 is larger, at most.

Source: Ho et al. 2013, NIPS, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server",
theorem 1; Jiang et al. 2020, OSDI, "A Unified Architecture for Accelerating Distributed DNN Training in Heterogeneous
GPU/CPU Clusters" (BytePS).
"""

from math import pi, sin, sqrt
from typing import NamedTuple

from simdist.errors import ArgumentError, as_declared, require_least, require_more

__all__ = [
    "Served",
    "byteps_bytes",
    "delayed_rate",
    "implicit_momentum",
    "mean_staleness",
    "server_bytes",
    "ssp_rate",
    "ssp_regret",
]


class Served(NamedTuple):
    """How n workers and k more servers share M bytes of weights, so that every link carries as much each way.

    Attributes:
        worker_bytes: that each worker serves, (n-k) M / (n² + kn - 2k).
        server_bytes: that each server serves, 2(n-1) M / (n² + kn - 2k).
        link_bytes: that each sends, and receives, in a step.
    """

    worker_bytes: float
    server_bytes: float
    link_bytes: float


@as_declared
def byteps_bytes(num_bytes: float, workers: int, servers: int = 0) -> Served:
    """2n(n-1) M / (n² + kn - 2k): what passes through each link in a synchronous step, on n workers and k servers.

        k = 0    2(n-1)/n M    as a ring all-reduce: each worker serves an n-th
        k = n    M             each worker sends all gradients, and receives all weights; only the servers serve

    A worker that serves m bytes sends M - m of gradients to others, and the weights that it serves to n-1 others.

    Args:
        num_bytes: M.
        workers, servers: n and k; of more than n servers the rest would be idle.

    Raises:
        ArgumentError: workers is less than 1, or servers not from 0 to workers.
    """
    n, k, m = workers, servers, num_bytes
    if not 0 <= k <= n or n < 1:
        raise ArgumentError(f"{k} servers of {n} workers; needs at least 1 worker, and at least as many as servers")
    if n == 1:
        return Served(0.0, m, m) if k else Served(m, 0.0, 0.0)
    whole = n * n + k * n - 2 * k
    return Served((n - k) * m / whole, 2 * (n - 1) * m / whole if k else 0.0, 2 * n * (n - 1) * m / whole)


@as_declared
def server_bytes(num_bytes: float, workers: int, servers: int = 1) -> Served:
    """max(1, n/k) M: what passes through the busiest link in a step, on n workers and k servers that share M evenly.

    Each worker sends and receives M, each server n/k M: with fewer servers than workers their links are the limit. With
    `byteps_bytes` workers serve the rest.

    Args:
        num_bytes: M.
        workers, servers: n and k.

    Raises:
        ArgumentError: workers or servers is less than 1.

    Source: Li et al. 2014, OSDI, "Scaling Distributed Machine Learning with the Parameter Server".
    """
    require_least("workers", workers, 1)
    require_least("servers", servers, 1)
    return Served(0.0, num_bytes / servers, num_bytes * max(1, workers / servers))


@as_declared
def implicit_momentum(workers: int) -> float:
    """1 - 1/P: the momentum that asynchrony amounts to, on average, if no worker waits and all are equally fast.

    With exponential times the next update is any worker's with probability 1/P. Its gradient, of the weights before l
    others, then weighs (1 - 1/P)^l / P, so that the mean step at the rate η is

        x(t+1) - x(t)  =  (1 - 1/P) (x(t) - x(t-1)) - η/P ∇f(x(t))

    Args:
        workers: P.

    Raises:
        ArgumentError: workers is less than 1.

    Source: Mitliagkas, Zhang, Hadjis, Ré 2016, arXiv 1605.09774.
    """
    require_least("workers", workers, 1)
    return 1 - 1 / workers


@as_declared
def mean_staleness(workers: int, gradients: int = 1) -> float:
    """(P-1)/c: how many updates old the weights of a gradient are, on average, if no worker waits.

    While a worker computes, P - 1 other gradients come in on average, whatever the times that workers take. n-softsync
    makes an update of c = P/n of them, so that it is about n: of 30 workers 29 for c = 1, 14.5 for 2 and 0.97 for 30.

    Args:
        workers, gradients: P, and c, of an update.

    Raises:
        ArgumentError: workers or gradients is less than 1.

    Source: Zhang, Gupta, Lian, Liu 2016, arXiv 1511.05950, section 2.4, where it is measured as close to n.
    """
    require_least("workers", workers, 1)
    require_least("gradients", gradients, 1)
    return (workers - 1) / gradients


@as_declared
def delayed_rate(curvature: float, delay: float) -> float:
    """2/λ sin(π / (4τ+2)): the learning rate up to which SGD is stable, if gradients are of weights τ updates old.

    On the loss λx²/2 it is x(t+1) = x(t) - η λ x(t-τ). Without delay 2/λ, with a long one about π/(2λτ). In a pipeline
    that neither drains nor stashes weights (PipeMare), forward of rank r of p has τ = (2(p-r) - 1)/m, with m
    micro-batches an update.

        delayed_rate(1.0, 10)                           # 0.15, of 2 without delay

    Args:
        curvature: λ, the highest of the loss.
        delay: τ; for asynchronous workers see `mean_staleness`.

    Raises:
        ArgumentError: curvature is not above 0, or delay below 0.

    Source: Yang, Zhang, Li, Ré, Aberger, De Sa 2021, MLSys, arXiv 1910.05124 (PipeMare), lemma 1 and table 1.
    """
    require_more("curvature", curvature, 0)
    return 2 / curvature * sin(pi / (4 * delay + 2))


@as_declared
def ssp_regret(updates: float, workers: int, staleness: float, *, distance: float, slope: float) -> float:
    """4 F L √(2(s+1)P / T): the most by which the mean loss of T updates exceeds the least.

    Args:
        updates, workers, staleness: T, P and s.
        distance, slope: F and L.

    Raises:
        ArgumentError: updates or workers is less than 1, or staleness below 0.
    """
    _check(updates, workers, staleness)
    return 4 * distance * slope * sqrt(2 * (staleness + 1) * workers / updates)


@as_declared
def ssp_rate(update: float, workers: int, staleness: float, *, distance: float, slope: float) -> float:
    """F / (L √(2(s+1)P t)): the learning rate η_t for which the bound holds.

    Args:
        update: t, from 1.
        workers, staleness, distance, slope: as of `ssp_regret`.

    Raises:
        ArgumentError: update or workers is less than 1, staleness below 0, or slope not above 0.
    """
    _check(update, workers, staleness)
    require_more("slope", slope, 0)
    return distance / slope / sqrt(2 * (staleness + 1) * workers * update)


def _check(updates: float, workers: int, staleness: float) -> None:
    """Raise ArgumentError if there are no updates or workers."""
    if updates < 1 or workers < 1:
        told = f"{updates} updates of {workers} workers, and staleness {staleness}"
        raise ArgumentError(f"{told}; needs at least 1, 1 and 0")
