"""Consistency: which reads and updates wait at a parameter server.

    c   the clock of a read: the step that its worker is about to make        s   the staleness allowed
    t   the stamp of an update: the clock at which its worker read            p   the number of workers

A worker at clock c has sent its updates 0 … c-1. A rule answers three questions: may a read be answered now,
is an arriving update still wanted, and which of the updates held are applied now?
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from simdist.asynchronous.parameter_server.clocks import Clocks, Push
from simdist.errors import ArgumentError, require_least

__all__ = ["BoundedStaleness", "Consistency", "Synchronous", "asynchronous", "synchronous"]


class Consistency(ABC):
    """A consistency rule, such as one of your own. It has no state: the state of a server is in its `Clocks`.

    Attributes:
        whole_steps: whether a step applies the mean of several updates; otherwise each is applied separately.
    """

    whole_steps = False

    def __repr__(self) -> str:
        """By its settings, which ranks compare: not by where in memory a rank has it."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @property
    def announces(self) -> bool:
        """Whether workers still computing for a step are told when it is over, and abandon it."""
        return False

    @abstractmethod
    def check(self, num_workers: int) -> None:
        """Raise ArgumentError if there are too few workers."""

    @abstractmethod
    def admits(self, clocks: Clocks, c: int) -> bool:
        """Whether a read at clock c may be answered now."""

    def wants(self, clocks: Clocks, t: int) -> bool:
        """Whether an update stamped t, not a duplicate, will be applied, now or later; by default all will."""
        return True

    @abstractmethod
    def due(self, clocks: Clocks, held: list[Push]) -> list[list[Push]]:
        """Remove from `held`, which is in order of arrival, the updates to apply now; each list in one step."""

    @abstractmethod
    def clock_of(self, clocks: Clocks, worker: int) -> int:
        """The clock at which a worker that does not know its clock continues."""

    @abstractmethod
    def num_whole_steps(self, clocks: Clocks) -> int:
        """The number of complete steps included in the weights."""

    @abstractmethod
    def end(self, clocks: Clocks) -> int:
        """The lowest clock from which on workers can be released, such that all can stop."""

    @abstractmethod
    def num_spare(self, num_workers: int) -> int:
        """The number of workers that may die before the rest cannot continue."""


@dataclass(frozen=True)
class BoundedStaleness(Consistency):
    """Stale synchronous: clocks are at most `staleness` apart; fast workers wait, slow ones never do.

    A reader at clock c sees every update stamped up to c-s-1, some or none of the window after those, none beyond it,
    and always its own:

        stamps    … c-s-2   c-s-1 | c-s   …   c+s-1 | c+s   …
                  all             | some or none    | none                  s = 0: an empty window

    Two waits ensure this. A read at c waits until all workers have sent their updates c-s-1. And an update t waits,
    at the server, until all workers have read at clock t-s: otherwise a late reader would see beyond the window, and
    s=0 would differ from the synchronous run. An update has been applied before its own worker may read again, so
    every worker sees its own updates.

    Each update is applied separately, as 1/p of a step.

    Args:
        staleness: s, at least 0; infinity for no bound: the asynchronous server.

    Source: Ho et al. 2013, NIPS, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
    Server".
    """

    staleness: float = 1

    def __post_init__(self) -> None:
        require_least("staleness", self.staleness, 0)
        if self.staleness < math.inf and self.staleness != int(self.staleness):
            raise ArgumentError(f"staleness is {self.staleness!r}; needs a whole number of at least 0, or infinity")

    def check(self, num_workers: int) -> None:
        """See Consistency."""

    def admits(self, clocks: Clocks, c: int) -> bool:
        """All updates stamped up to c-s-1 have arrived."""
        return min(clocks.commits) >= c - self.staleness

    def due(self, clocks: Clocks, held: list[Push]) -> list[list[Push]]:
        """Those inside the windows of all future reads."""
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
        """See Consistency. Without a bound at once; with one the slow workers have to catch up with the fast ones."""
        return 0 if self.staleness == math.inf else clocks.unread

    def num_spare(self, num_workers: int) -> int:
        """See Consistency. The last one can continue."""
        return num_workers - 1


@dataclass(frozen=True)
class Synchronous(Consistency):
    """Steps, each closed when enough workers have pushed: all of them, or the first N of N+b.

    With b backup workers the first N updates of a step close it, and the b later ones are dropped: the step
    does not wait for stragglers. Workers still computing when a step is closed are told so and begin the next
    one; without such notices, they finish an update that is dropped.

        E[time of a step] = H_{N+b} - H_b   for times drawn from Exp(1), H_n = 1 + 1/2 + … + 1/n

    The mean of the kept updates is applied; they are added in the order of the workers.

    Args:
        backups: b, at least 0.
        interrupts: whether workers still computing for a step are told when it is over, and abandon it.

    Source: Chen, Pan, Monga, Bengio, Jozefowicz 2016, arXiv 1604.00981, "Revisiting Distributed Synchronous
    SGD". The formula assumes that stragglers stop at once.
    """

    backups: int = 0
    interrupts: bool = True
    whole_steps = True

    def __post_init__(self) -> None:
        require_least("backups", self.backups, 0)

    @property
    def announces(self) -> bool:
        """See Consistency."""
        return self.interrupts and self.backups > 0

    def check(self, num_workers: int) -> None:
        """See Consistency."""
        if self.backups >= num_workers:
            raise ArgumentError(
                f"{self.backups} backups of {num_workers} workers; needs at least 1 that is not a backup"
            )

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
        """See Consistency. A step that any worker has begun has to be closed."""
        return clocks.unread

    def num_spare(self, num_workers: int) -> int:
        """See Consistency."""
        return self.backups


def asynchronous() -> BoundedStaleness:
    """No waits: each update is applied as it arrives."""
    return BoundedStaleness(math.inf)


def synchronous() -> Synchronous:
    """Bulk-synchronous: a step ends when all workers have pushed."""
    return Synchronous()
