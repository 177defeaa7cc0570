"""Consensus: how far apart the ranks' weights are, measured without disturbing the method.

The error at an instant is Σ_i ‖x_i - x̄‖², over the ranks, around their mean x̄. Measuring it while a method runs would
take messages, which would change the traffic and the waiting times. So each rank only keeps timestamped copies of its
weights; when the method has ended, the ranks evaluate these together.

    rank 0     x₀ --- x₀' ------ x₀'' -- end --+
    rank 1     x₁ ----- x₁' ---- x₁'' -- end --+-- errors of each instant, from the last copy of each rank before it
    rank 2     x₂ - x₂' -- x₂'' -------- end --+

These messages follow the method's last, on the communicator's twin, so the method's counts exclude them.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from simdist.arrays import Array
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.trace import Span

__all__ = ["CONSENSUS", "Snapshots", "consensus_error", "recorded"]

CONSENSUS = "state consensus"
"""The name of the spans that carry a consensus error."""


def consensus_error(iterates: Array) -> float:
    """Σ_i ‖x_i - x̄‖² of these weights, shape (ranks, n), one row per rank."""
    x = np.asarray(iterates, np.float64)
    return float(((x - x.mean(axis=0)) ** 2).sum())


class Snapshots:
    """Snapshots of one rank's weights, each with its time: `Worker(…, observe=snapshots.take)`.

    Args:
        comm: the ranks that train together.
        weights: those before the first step, kept as the first copy; None for no such copy.

    Attributes:
        times_s: when each copy was made, on the communicator's clock.
        iterates: the copies.

    Cost: the memory of the weights for each copy; no messages before `errors`.
    """

    def __init__(self, comm: Communicator, weights: Array | None = None) -> None:
        self.comm = comm
        self.times_s: list[float] = []
        self.iterates: list[Array] = []
        self._lock = threading.Lock()  # two streams of a rank may both call take
        if weights is not None:
            self.take(0, weights)

    def take(self, step: int, weights: Array) -> None:
        """Keep a copy."""
        with self._lock:
            self.times_s.append(self.comm.clock())
            self.iterates.append(weights.copy())

    def pop(self, count: int) -> "Snapshots":
        """Remove and return this many of the first copies."""
        first = Snapshots(self.comm)
        with self._lock:
            first.times_s, self.times_s = self.times_s[:count], self.times_s[count:]
            first.iterates, self.iterates = self.iterates[:count], self.iterates[count:]
        return first

    def errors(self, times_s: Sequence[float] | None = None) -> list[tuple[float, float]]:
        """(time, consensus error) at each of these instants; by default after each rank's k-th copy, for all k.

        All ranks must call it after the method has ended, with the same times. Rank 0 adds the errors to the record as
        spans named CONSENSUS of zero duration, with the error as detail.

        For an instant before a rank's first copy, that first copy is used.

        Cost: one all-reduce of n float64 per instant, and two all-reduces of k float64 for k instants.

        Raises:
            ArgumentError: without times, ranks have different numbers of copies; or some rank has none; on every rank.
        """
        comm = self.comm
        counts = [int(note) for note in comm.exchange(str(len(self.iterates)))]
        if min(counts) == 0 or (times_s is None and len(set(counts)) > 1):
            raise ArgumentError(f"ranks keep {counts} copies; needs as many on all, or times and at least 1")
        if times_s is None:
            which, when = list(range(counts[0])), np.array(self.times_s)
        else:
            which, when = [max(0, bisect_right(self.times_s, t) - 1) for t in times_s], np.array(times_s, np.float64)
        with comm.span("measure consensus"):
            errors = np.array([self._deviation(self.iterates[i]) for i in which])
            all_reduce(errors, comm)
            all_reduce(when, comm, "max")
        found = list(zip(when.tolist(), errors.tolist(), strict=True))
        for at_s, error in found if comm.rank == 0 else ():
            comm.recorder.add("states", CONSENSUS, at_s, at_s, detail=repr(error))
        return found

    def _deviation(self, iterate: Array) -> float:
        """‖x_i - x̄‖² of this rank's weights."""
        mean = iterate.astype(np.float64)
        all_reduce(mean, self.comm)
        return float(((iterate - mean / self.comm.size) ** 2).sum())


def recorded(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """The (time, consensus error) pairs of a record, by time."""
    return sorted((s.start_s, float(s.detail)) for s in spans if s.name == CONSENSUS)
