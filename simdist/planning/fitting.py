"""Fitting: the efficiency of a cluster's devices, from the time that a step was measured to take on it."""

from dataclasses import replace
from math import inf

from simdist.cluster import Cluster
from simdist.errors import ArgumentError, require_more
from simdist.planning.search import planned
from simdist.planning.workbench import Workbench
from simdist.training.config import Config

__all__ = ["check_measured", "fitted_efficiency"]

_CLOSE = 1e-3
_MOST_TRIALS = 20


def check_measured(name: str, seconds: float) -> None:
    """Raise ArgumentError unless this is a time that a step can take; `name` is the argument's."""
    require_more(name, seconds, 0)
    if seconds == inf:
        raise ArgumentError(f"{name} is {seconds}; needs a finite time")


def fitted_efficiency(config: Config, cluster: Cluster, ranks: int, measured_s: float) -> float:
    """The `flops_efficiency` of a device with which the predicted step takes the measured time, to a thousandth.

    Everything else is as the cluster says. Where its links and memory are slower than that, the difference counts as
    computing; so a step that waits little for them tells most.

    Args:
        config: of the measured run, for plans: with device "phantom".
        cluster: its own flops_efficiency does not matter.
        measured_s: seconds of a step, above 0.

    Cost: some four predictions.

    Raises:
        ArgumentError: even at their peak devices take longer, or with no efficiency so long; or as of `Job`.
    """
    check_measured("measured_s", measured_s)

    def step_s(slower: float) -> float:
        device = replace(cluster.device, flops_efficiency=1 / slower)
        return planned(config, Workbench(cluster.with_(device=device), ranks)).step.seconds

    x, y = 1.0, step_s(1.0)
    if measured_s < y * (1 - _CLOSE):
        raise ArgumentError(f"measured_s is {measured_s:g}; needs at least {y:.4g}, of devices at their peak")
    slower = max(measured_s / y, 1.0)
    for _ in range(_MOST_TRIALS):  # of secants: the time is nearly linear in how much slower devices are
        found_s = step_s(slower)
        if abs(found_s - measured_s) <= _CLOSE * measured_s:
            return 1 / slower
        onward = (measured_s - found_s) * (slower - x) / (found_s - y) if found_s != y else slower
        x, y, slower = slower, found_s, slower + onward
    raise ArgumentError(f"measured_s is {measured_s:g}; a step takes {y:.4g} with any flops_efficiency")
