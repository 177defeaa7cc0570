"""Counts: what a server counts while it serves."""

from dataclasses import dataclass, field

__all__ = ["Counts"]


@dataclass
class Counts:
    """The counts of one server.

    Attributes:
        staleness: of each update applied, in order of application: the number of times that the weights changed
            between its worker's read and its application.
        applied: (worker, clock) of each update, in the same order.
        num_late: updates that arrived after their step was closed, and were dropped.
        num_duplicates: updates that had arrived before, and were ignored.
    """

    staleness: list[int] = field(default_factory=list)
    applied: list[tuple[int, int]] = field(default_factory=list)
    num_late: int = 0
    num_duplicates: int = 0
