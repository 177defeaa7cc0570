"""Consistency: who waits for whom at a parameter server.

    c   the clock of a read: the step that its worker is about to make        s   the staleness allowed
    t   the stamp of an update: the clock at which its worker read            p   how many workers

A worker at clock c has sent its updates 0 … c-1. A rule answers three questions: may a read be answered now,
is an arriving update still wanted, and which of the updates at hand are applied now?
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from simdist.asynchronous.parameter_server.clocks import Clocks, Push
from simdist.errors import ArgumentError

__all__ = ["BoundedStaleness", "Consistency", "Synchronous", "asynchronous", "synchronous"]


class Consistency(ABC):
    """A consistency rule. It has no state: what a server knows is in its `Clocks`.

    Attributes:
        whole_steps: whether the mean of several updates makes a step; else each is applied by itself.
    """

    whole_steps = False

    @property
    def announces(self) -> bool:
        """Whether workers still at work on a step are told when it is over, and abandon it."""
        return False

    @abstractmethod
    def check(self, num_workers: int) -> None:
        """Raise ArgumentError if there are too few workers."""

    @abstractmethod
    def admits(self, clocks: Clocks, c: int) -> bool:
        """Whether a read at clock c may be answered now."""

    @abstractmethod
    def wants(self, clocks: Clocks, t: int) -> bool:
        """Whether an update stamped t, not a duplicate, will be applied, now or later."""

    @abstractmethod
    def due(self, clocks: Clocks, held: list[Push]) -> list[list[Push]]:
        """Take out of `held`, in order of arrival, the updates to apply now; each list in one step."""

    @abstractmethod
    def clock_of(self, clocks: Clocks, worker: int) -> int:
        """The clock at which a worker continues that does not know its own."""

    @abstractmethod
    def num_whole_steps(self, clocks: Clocks) -> int:
        """How many complete steps the weights include."""

    @abstractmethod
    def end(self, clocks: Clocks) -> int:
        """The earliest clock before which all workers can stop, each at its own next one or later."""

    @abstractmethod
    def num_spare(self, num_workers: int) -> int:
        """How many workers may die before the rest cannot continue."""


@dataclass(frozen=True)
class BoundedStaleness(Consistency):
    """Stale synchronous: clocks are at most `staleness` apart; fast workers wait, slow ones never do.

    A reader at clock c sees every update stamped up to c-s-1, some or none of the window, none beyond it, and
    always its own:

        stamps    … c-s-2   c-s-1 | c-s   …   c+s-1 | c+s   …
                  all             | some or none    | none                  s = 0: an empty window

    Two waits make that so. A read at c waits until all workers have sent their updates c-s-1. And an update t
    waits, at the server, until all workers have read at clock t-s: without that, a reader who is late to
    ask would see beyond the window, and s=0 would not be the synchronous run. An update has been applied by the
    time that its own worker may read again, so no worker misses its own.

    Each update is applied by itself, as the p-th part of a step.

    Args:
        staleness: s, at least 0; infinity for no bound, the asynchronous server.

    Source: Ho et al. 2013, NIPS, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
    Server".
    """

    staleness: float = 1

    def __post_init__(self) -> None:
        if not (self.staleness == math.inf or (self.staleness >= 0 and self.staleness == int(self.staleness))):
            raise ArgumentError(f"staleness is {self.staleness!r}; needs a whole number of at least 0, or infinity")

    def check(self, num_workers: int) -> None:
        """See Consistency."""

    def admits(self, clocks: Clocks, c: int) -> bool:
        """All updates stamped up to c-s-1 have come."""
        return min(clocks.commits) >= c - self.staleness

    def wants(self, clocks: Clocks, t: int) -> bool:
        """See Consistency. However late."""
        return True

    def due(self, clocks: Clocks, held: list[Push]) -> list[list[Push]]:
        """Those that no reader is too early for."""
        if not held:
            return []
        t_end = min(clocks.reads) + self.staleness
        let_in = [push for push in held if push.clock < t_end]
        held[:] = [push for push in held if push.clock >= t_end]
        return [[push] for push in let_in]

    def clock_of(self, clocks: Clocks, worker: int) -> int:
        """See Consistency."""
        return clocks.commits[worker]

    def num_whole_steps(self, clocks: Clocks) -> int:
        """See Consistency."""
        return min(applied for worker, applied in enumerate(clocks.applied) if worker not in clocks.dead)

    def end(self, clocks: Clocks) -> int:
        """See Consistency. Without a bound nobody waits; with one the slow have to come to where the fast are."""
        return 0 if self.staleness == math.inf else clocks.unread

    def num_spare(self, num_workers: int) -> int:
        """See Consistency. The last one can go on."""
        return num_workers - 1


@dataclass(frozen=True)
class Synchronous(Consistency):
    """Steps, each closed when enough workers have pushed: all of them, or the first N of N+b.

    With b backup workers the first N updates of a step close it, and the b later ones are dropped: the step
    does not wait for stragglers. Workers still at work when a step is closed are told so and begin the next
    one; if they are not told, they finish an update that is dropped.

        E[time of a step] = H_{N+b} - H_b   for times drawn from Exp(1), H_n = 1 + 1/2 + … + 1/n

    The mean of the kept updates is applied, added up in the order of the workers.

    Args:
        backups: b, at least 0.
        interrupts: whether workers still at work on a step are told when it is over, and abandon it.

    Source: Chen, Pan, Monga, Bengio, Jozefowicz 2016, arXiv 1604.00981, "Revisiting Distributed Synchronous
    SGD". The formula assumes that stragglers stop at once.
    """

    backups: int = 0
    interrupts: bool = True
    whole_steps = True

    def __post_init__(self) -> None:
        if self.backups < 0:
            raise ArgumentError(f"backups is {self.backups}; needs at least 0")

    @property
    def announces(self) -> bool:
        """See Consistency."""
        return self.interrupts and self.backups > 0

    def check(self, num_workers: int) -> None:
        """See Consistency."""
        if self.backups >= num_workers:
            raise ArgumentError(f"{self.backups} backups of {num_workers} workers; needs at least 1 that is no backup")

    def admits(self, clocks: Clocks, c: int) -> bool:
        """Step c-1 is closed."""
        return clocks.step >= c

    def wants(self, clocks: Clocks, t: int) -> bool:
        """See Consistency."""
        return t >= clocks.step

    def due(self, clocks: Clocks, held: list[Push]) -> list[list[Push]]:
        """A whole step, as soon as it can be closed."""
        needed = len(clocks.commits) - self.backups
        if len(held) < needed:
            return []
        clocks.step += 1
        kept = sorted(held[:needed], key=lambda push: push.worker)
        held.clear()
        return [kept]

    def clock_of(self, clocks: Clocks, worker: int) -> int:
        """See Consistency."""
        return clocks.step

    def num_whole_steps(self, clocks: Clocks) -> int:
        """See Consistency."""
        return clocks.step

    def end(self, clocks: Clocks) -> int:
        """See Consistency. A step that anybody has begun has to be closed."""
        return clocks.unread

    def num_spare(self, num_workers: int) -> int:
        """See Consistency."""
        return self.backups


def asynchronous() -> BoundedStaleness:
    """Nobody waits: each update is applied as it arrives."""
    return BoundedStaleness(math.inf)


def synchronous() -> Synchronous:
    """Bulk-synchronous: a step ends when all have pushed."""
    return Synchronous()
