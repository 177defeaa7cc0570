"""Shared: what all virtual ranks of a run have in common."""

from collections.abc import Callable

from simdist.cluster import Cluster, Network
from simdist.comm.virtual.scheduler import Fiber, Scheduler
from simdist.comm.virtual.stream import VirtualStream
from simdist.errors import CollectiveMismatch, DeadlockError

__all__ = ["Shared"]


class Shared:
    """The scheduler, the network and the streams of a run, and what happens when nobody can go on.

    Args:
        cluster: the machine that is modelled.
        ranks: how many there are.
        check: whether collectives compare what the ranks ask for.
    """

    def __init__(self, cluster: Cluster, ranks: int, check: bool) -> None:
        self.cluster = cluster
        self.check = check
        self.scheduler = Scheduler(self._idle)
        self.network = Network(cluster, ranks)
        self.streams: list[VirtualStream] = []

    def rate(self, rank: int) -> Callable[[int, int], float]:
        """How long this rank computes, as a function of operations and bytes."""
        factor = self.cluster.slow.get(rank, 1.0)
        s_per_flop = factor / self.cluster.device.flops_per_s
        s_per_byte = factor / self.cluster.device.memory_bytes_per_s
        return lambda flops, num_bytes: max(flops * s_per_flop, num_bytes * s_per_byte)

    def unheard(self) -> tuple[Fiber, Exception] | None:
        """A failure on a stream that nobody has waited for, if there is one."""
        return next(((s.fiber, w.error) for s in self.streams for w in s.unheard if w.error), None)

    def _idle(self) -> bool:
        """Nobody can go on: find the cause, and let those who wait in vain know it."""
        failure = self.unheard()
        stuck = self.scheduler.stuck()
        disputes = {f.waiting.group.family: f.waiting for f in stuck if getattr(f.waiting, "said", None)}
        if failure is not None:
            self.scheduler.failure = failure
        elif disputes:
            for fiber in stuck:
                group = fiber.waiting and fiber.waiting.group
                if group is not None and group.family in disputes:
                    self._raise_in(fiber, CollectiveMismatch(disputes[group.family].text()))
        else:
            report = _report(stuck, {f.rank for f in self.scheduler.fibers if f.done and f.stream == "main"})
            for fiber in stuck:
                self._raise_in(fiber, DeadlockError(report))
        return True

    def _raise_in(self, fiber: Fiber, error: Exception) -> None:
        fiber.error = error
        self.scheduler.ready(fiber, fiber.clock_s)


def _report(stuck: list[Fiber], ended: set[int], most: int = 16) -> str:
    """Who waits for whom, the cycle first."""
    waits = [(f, *f.waiting.waits_for()) for f in stuck if f.waiting is not None]
    cycle = _cycle({f.rank: ranks for f, _, ranks in reversed(waits)})
    head = "deadlock: no rank can go on"
    if cycle:
        head = "deadlock: " + " waits for ".join(f"rank {r}" for r in cycle)
    rows = [f"  {f.label()} {what}{_ended(ranks, ended)}" for f, what, ranks in waits[:most]]
    if len(waits) > most:
        rows.append(f"  … and {len(waits) - most} more")
    return "\n".join([head, *rows])


def _ended(awaited: list[int], ended: set[int]) -> str:
    return f"; rank {awaited[0]} has ended" if len(awaited) == 1 and awaited[0] in ended else ""


def _cycle(awaited: dict[int, list[int]]) -> list[int]:
    """The ranks round one cycle of who waits for whom, the first also at the end; empty where there is none.

    A rank that waits for any of several is followed to the first of them that waits too.
    """
    for start in awaited:
        path = [start]
        while True:
            onward = next((r for r in awaited[path[-1]] if r in awaited), None)
            if onward is None:
                break
            if onward in path:
                return [*path[path.index(onward) :], onward]
            path.append(onward)
    return []
