"""Formulas: what staleness costs, by the theorem on SGD under bounded staleness.

T  updates, of all workers together      P  workers      s  the staleness allowed      t  an update, from 1
L  the most that a loss changes, per unit of distance    F  ½‖x - x'‖² is at most F² for any two weights

If the losses f_t are convex, and update t has the learning rate η_t = σ / √t, with σ = F / (L √(2(s+1)P)), then

    1/T Σ f_t(x̃_t) - f(x*)  ≤  4 F L √(2(s+1)P / T)        x̃_t: the weights as its worker had read them

So as many times more updates are needed as s + 1 is larger, at most.

Source: Ho et al. 2013, NIPS, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server",
theorem 1.
"""

from math import sqrt

from simdist.errors import ArgumentError

__all__ = ["ssp_rate", "ssp_regret"]


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


def ssp_rate(update: float, workers: int, staleness: float, *, distance: float, slope: float) -> float:
    """F / (L √(2(s+1)P t)): the learning rate η_t for which the bound holds.

    Args:
        update: t, from 1.
        workers, staleness, distance, slope: as of `ssp_regret`.

    Raises:
        ArgumentError: update or workers is less than 1, staleness below 0, or slope not above 0.
    """
    _check(update, workers, staleness)
    if not slope > 0:
        raise ArgumentError(f"slope is {slope}; needs more than 0")
    return distance / slope / sqrt(2 * (staleness + 1) * workers * update)


def _check(updates: float, workers: int, staleness: float) -> None:
    """Raise ArgumentError if there are no updates or workers."""
    if updates < 1 or workers < 1 or staleness < 0:
        told = f"{updates} updates of {workers} workers, and staleness {staleness}"
        raise ArgumentError(f"{told}; needs at least 1, 1 and 0")
