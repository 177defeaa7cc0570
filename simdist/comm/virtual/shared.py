"""Shared: the state that all virtual ranks of a run share."""

from simdist.cluster import Cluster, Network
from simdist.comm.open_requests import OpenRequests, remedy
from simdist.comm.virtual.group import Agreement
from simdist.comm.virtual.peers import Memory
from simdist.comm.virtual.scheduler import Fiber, Scheduler, Waiting
from simdist.comm.virtual.stream import VirtualStream
from simdist.errors import CollectiveMismatch, DeadlockError
from simdist.words import listed

__all__ = ["Shared"]

_MOST_ROWS = 16  # of a deadlock report
_MOST_LOOKS = 1_000_000  # in vain, at one instant: a second's work


class Shared:
    """The scheduler, the network and the streams of a run; it also detects deadlocks.

    Args:
        cluster: the simulated machine.
        ranks: how many there are.
        check: whether collectives compare the arguments of the ranks.

    Attributes:
        memory: the arrays from `comm.empty`.
        open: the requests that no rank has waited for yet.
    """

    def __init__(self, cluster: Cluster, ranks: int, check: bool) -> None:
        self.cluster = cluster
        self.check = check
        self.scheduler = Scheduler()
        self.network = Network(cluster, ranks)
        self.streams: list[VirtualStream] = []
        self.memory = Memory()
        self.open = OpenRequests()
        self._last_look: tuple[Fiber, float] | None = None
        self._looks = 0

    def fiber(self, rank: int, stream: str, daemon: bool = False) -> Fiber:
        """A fiber that computes at the speed of this rank."""
        factor, device = self.cluster.slow.get(rank, 1.0), self.cluster.device
        s_per_flop, s_per_byte = factor / device.reached_flops_per_s, factor / device.reached_bytes_per_s
        return Fiber(rank, stream, s_per_flop, s_per_byte, daemon)

    def seen(self, there: bool) -> bool:
        """Count a look of the running fiber at whether something is there; returns that.

        Raises:
            DeadlockError: it has looked very often in a row, in vain: no time passes meanwhile, so nothing can come.
        """
        fiber = self.scheduler.running
        look = fiber, fiber.clock_s
        self._looks = self._looks + 1 if not there and look == self._last_look else 0
        self._last_look = look
        if self._looks == _MOST_LOOKS:
            raise DeadlockError(
                f"{fiber.label()} has looked {_MOST_LOOKS:,} times for a message at {fiber.clock_s:g} s, when none is "
                "there; virtual time passes only while ranks compute or wait: call wait, or probe with until_s"
            )
        return there

    def run(self) -> None:
        """Run all fibers to their ends, or until one fails."""
        self.scheduler.run(self._idle)

    def unheard(self) -> tuple[Fiber, Exception] | None:
        """A failure on a stream whose error no `wait` has raised, if there is one."""
        return next(((s.fiber, w.error) for s in self.streams for w in s.failed if w.error and not w.heard), None)

    def forget(self) -> None:
        """Let go of streams and errors: they refer to what refers to them, an error by way of frames with arrays."""
        self.scheduler.failure = None
        for stream in self.streams:
            for work in stream.failed:
                work.error = None
            stream.failed.clear()
        self.streams.clear()

    def _idle(self) -> None:
        """No fiber can continue: find the cause, and raise it in those that are blocked."""
        failure = self.unheard()
        stuck = [(f, f.waiting) for f in self.scheduler.stuck() if f.waiting is not None]
        disputes = {waiting.group.family: waiting.error() for _, waiting in stuck if isinstance(waiting, Agreement)}
        if failure is not None:
            self.scheduler.failure = failure
        elif disputes:
            for fiber, waiting in stuck:
                if waiting.group is not None and waiting.group.family in disputes:
                    self._raise_in(fiber, waiting, CollectiveMismatch(*disputes[waiting.group.family].args))
        else:
            report, notes = _report(stuck, {f.rank for f in self.scheduler.fibers} - {f.rank for f, _ in stuck})
            for fiber, waiting in stuck:
                error = DeadlockError(report)
                for note in notes:
                    error.add_note(note)
                self._raise_in(fiber, waiting, error)

    def _raise_in(self, fiber: Fiber, waiting: Waiting, error: Exception) -> None:
        waiting.give_up(fiber)
        fiber.error = error
        self.scheduler.ready(fiber, fiber.clock_s)


def _report(stuck: list[tuple[Fiber, Waiting]], ended: set[int]) -> tuple[str, list[str]]:
    """The deadlock report: the cycle of ranks, and what each fiber waits for; and as notes what to do."""
    waits: dict[int, list[Waiting]] = {}
    for fiber, waiting in stuck:
        waits.setdefault(fiber.rank, []).append(waiting)
    cycle = _cycle(waits)
    head = "deadlock: no rank can go on"
    if cycle:
        shown = [*cycle[:_MOST_ROWS], "…", cycle[-1]] if len(cycle) > _MOST_ROWS + 1 else cycle
        head = "deadlock: " + " waits for ".join(r if r == "…" else f"rank {r}" for r in shown)
    rows = []
    for fiber, waiting in stuck[:_MOST_ROWS]:
        what, ranks = waiting.waits_for()
        gone = f"; {listed(ranks)} {'has' if len(ranks) == 1 else 'have'} ended" if ended.issuperset(ranks) else ""
        rows.append(f"  {fiber.label()} {what}{gone if ranks else ''}")
    if len(stuck) > _MOST_ROWS:
        rows.append(f"  … and {len(stuck) - _MOST_ROWS} more")
    told = [waiting.waits_for()[0] for rank in cycle[1:] for waiting in waits[rank]]
    return "\n".join([head, *rows]), remedy(told)


def _cycle(waits: dict[int, list[Waiting]]) -> list[int]:
    """The ranks along one cycle of waits, with the first one repeated at the end; empty if there is no cycle.

    If a rank waits for several others, the search follows the first of them that waits, too.
    """
    seen: set[int] = set()
    for start in waits:
        path: list[int] = []
        onward: int | None = start
        while onward is not None and onward not in seen:
            seen.add(onward)
            path.append(onward)
            onward = _next_waiter(onward, waits)
        if onward in path:
            return [*path[path.index(onward) :], onward]
    return []


def _next_waiter(rank: int, waits: dict[int, list[Waiting]]) -> int | None:
    """The first waiting rank that this one waits for; itself only if its streams wait for no other rank."""
    awaited = [r for waiting in waits[rank] for r in waiting.waits_for()[1]]
    others = [r for r in awaited if r != rank]
    return next((r for r in others or awaited if r in waits), None)
