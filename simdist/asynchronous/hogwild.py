"""Hogwild: ranks of a node update one shared vector concurrently and without a lock.

    x     one vector in shared memory
    e     the keys that an example touches: few of many, so two ranks seldom touch the same key at the same time

        rank 0     read x[e] |---- gradient ----| x[e] -= γ g
        rank 1            read x[e'] |---- gradient ----| x[e'] -= γ g'
                                                ^
                      rank 0 writes in between: if e and e' have keys in common, rank 1's gradient is of stale
                      weights, and each such key is a conflict

If no two ranks touch the same keys, the result is bit-identical to that of one rank that makes all steps in sequence.
Otherwise it is close, and closer for sparser problems. The number of conflicts indicates how close.

Source: Niu, Recht, Ré, Wright 2011, arXiv 1106.5730, algorithm 1.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from simdist.arrays import Array, charge
from simdist.asynchronous.compute_time import ComputeTime, Constant
from simdist.asynchronous.worker import Rate
from simdist.comm import Communicator
from simdist.errors import ArgumentError, require_least

__all__ = ["Hogwild", "SparseObjective", "Touches"]


class SparseObjective(Protocol):
    """One rank's terms of a sum in which each term depends on few of the weights."""

    def keys(self, step: int) -> Array:
        """The keys of the weights that this step's term depends on: int64, ascending, each once."""

    def gradient(self, weights: Array, step: int) -> tuple[float, Array]:
        """(loss, gradient) of this step's term, at the weights of `keys(step)` and with respect to them: same shape."""


class Touches(NamedTuple):
    """One rank's accesses to the shared vector.

    Attributes:
        losses: one per step, at the weights that it read.
        num_keys: how many keys it wrote, repetitions included.
        conflicts: how often another rank wrote a key that this rank had read but not yet written.
    """

    losses: list[float]
    num_keys: int
    conflicts: int


class Hogwild:
    """One vector of weights shared by all ranks of a node, and one rank's updates of it.

    Args:
        comm: ranks of one node; all of them must construct it.
        weights: initial values, shape (n,), floats; those of rank 0 are used.

    Attributes:
        weights: the shared vector; it includes every rank's changes.

    Cost: no messages. A step touches only the keys of its term. To count conflicts takes 8·n bytes of shared memory
    per rank.

    Raises:
        ArgumentError: the ranks are on more than one node; on every rank.
    """

    def __init__(self, comm: Communicator, weights: Array) -> None:
        if comm.num_nodes > 1:
            raise ArgumentError(
                f"Hogwild on rank {comm.rank}: {comm.size} ranks on {comm.num_nodes} nodes have no shared memory"
            )
        self.comm = comm
        self.weights = comm.shared(weights.shape, weights.dtype)
        # One row per rank, which no other rank writes to: so concurrent writes lose no count.
        self._writes = comm.shared((comm.size, len(weights)), np.int64)
        if comm.rank == 0:
            self.weights[...] = weights
        self.meet()

    def meet(self) -> None:
        """A barrier, after which all earlier writes of all ranks can be read."""
        self.comm.fence()
        self.comm.barrier()
        self.comm.fence()

    def train(
        self,
        objective: SparseObjective,
        steps: int,
        learning_rate: Rate,
        *,
        compute_time: ComputeTime | None = None,
        observe: Callable[[int, Array], None] | None = None,
    ) -> Touches:
        """Make this many steps, concurrently with the other ranks; returns when all are done.

        On virtual ranks reads and writes happen in the order of virtual time, so conflicts are exact: two steps
        that overlap in time conflict in each key that both touch. On real ranks they are those that a rank detects
        from counts of writes, read before and after. There one of two simultaneous updates of a key may be lost,
        because NumPy's additions, unlike the paper's, are not atomic.

        Args:
            objective: this rank's terms.
            steps: of this rank.
            learning_rate: of plain SGD.
            compute_time: extra time of a step, in addition to its actual computation.
            observe: called with (step, all weights) after each step.

        Raises:
            ArgumentError: keys are not ascending, or out of range.
        """
        require_least("steps", steps, 0)
        times = compute_time or Constant()
        found = []
        for step in range(steps):
            rate = learning_rate(step) if callable(learning_rate) else learning_rate
            found.append(self._step(objective, step, rate, times))
            if observe is not None:
                observe(step, self.weights)
        self.meet()
        return Touches([loss for loss, _, _ in found], sum(n for _, n, _ in found), sum(n for _, _, n in found))

    def _step(
        self, objective: SparseObjective, step: int, rate: float, compute_time: ComputeTime
    ) -> tuple[float, int, int]:
        """One step: its loss, the number of keys that it wrote, and the number of its conflicts."""
        comm = self.comm
        e = self._checked(objective.keys(step))
        with comm.span("hogwild step", e.size * self.weights.itemsize):
            comm.fence()
            start_s = comm.clock()
            before = self._num_writes(e)
            loss, g = objective.gradient(self.weights[e], step)
            compute_time.spend(comm, step, comm.clock() - start_s)
            comm.fence()
            conflicts = self._num_writes(e) - before
            self.weights[e] -= rate * g
            self._writes[comm.rank, e] += 1
            charge(2 * e.size, 4 * e.size * self.weights.itemsize)
        return float(loss), e.size, conflicts

    def _num_writes(self, e: Array) -> int:
        """How often ranks have written these keys; between this rank's read and write only others do."""
        return int(self._writes[:, e].sum())

    def _checked(self, e: Array) -> Array:
        """The keys, checked: of a key that came twice only one update would be written."""
        if len(e) and (e[0] < 0 or e[-1] >= len(self.weights) or (e[1:] <= e[:-1]).any()):
            raise ArgumentError(
                f"keys {e[:8].tolist()}… on rank {self.comm.rank}: need to ascend, from 0 to {len(self.weights) - 1}"
            )
        return e
