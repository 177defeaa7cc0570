"""Measurement: the times of a collective, measured, predicted and by formula."""

from dataclasses import dataclass
from math import nan

__all__ = ["Measurement"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One algorithm at one size on one number of ranks; an unknown time is None.

    Attributes:
        measured_s: wall-clock time.
        predicted_s: by the virtual world, on a model of the cluster.
        formula_s: by the published formula, with the same alpha, beta and gamma.
        bus_bytes_per_s: from the measured time, or from the predicted one if there is none.
    """

    operation: str
    algorithm: str
    ranks: int
    num_bytes: int
    measured_s: float | None = None
    predicted_s: float | None = None
    formula_s: float | None = None
    bus_bytes_per_s: float = nan
