"""Counts: what a server counts as it serves."""

from dataclasses import dataclass, field

__all__ = ["Counts"]


@dataclass
class Counts:
    """What a server has counted.

    Attributes:
        staleness: of each update applied, in the order of their application: how many times the weights
            were changed between its worker's read and its application.
        applied: (worker, clock) of each, in the same order.
        num_late: updates that arrived after their step was closed, and were dropped.
        num_duplicates: updates that had arrived before, and were ignored.
        waited_s: how long the server waited for requests.
    """

    staleness: list[int] = field(default_factory=list)
    applied: list[tuple[int, int]] = field(default_factory=list)
    num_late: int = 0
    num_duplicates: int = 0
    waited_s: float = 0.0
