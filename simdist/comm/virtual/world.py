"""World: runs a program on virtual ranks, in this process."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from simdist.cluster import Cluster
from simdist.comm.open_requests import listed_below
from simdist.comm.placement import Placement
from simdist.comm.virtual.communicator import VirtualCommunicator
from simdist.comm.virtual.group import Group
from simdist.comm.virtual.scheduler import Fiber
from simdist.comm.virtual.shared import Shared
from simdist.errors import RankFailed, UnmatchedMessage
from simdist.trace import Recorder, Span

__all__ = ["run_virtual"]


def run_virtual(
    program: Callable[..., Any],
    ranks: int,
    cluster: Cluster,
    args: tuple[Any, ...] = (),
    record: bool = True,
    check: bool = True,
) -> tuple[list[Any], list[Span], float]:
    """Run program(comm, *args) on virtual ranks of a simulated cluster.

    Returns:
        the results by rank, the record, and the virtual seconds until the last rank ended.

    Raises:
        DeadlockError: no rank can continue.
        Exception: what the first rank to fail raised, in virtual time, with a note that names the rank.
    """
    with _COLLECTOR.rarely(ranks):
        return _run(program, ranks, cluster, args, record, check)


def _run(
    program: Callable[..., Any], ranks: int, cluster: Cluster, args: tuple[Any, ...], record: bool, check: bool
) -> tuple[list[Any], list[Span], float]:
    shared = Shared(cluster, ranks, check)
    nodes = Placement(cluster.node_of(r) for r in range(ranks))
    group = Group(shared.scheduler, shared.network, "world", range(ranks), nodes, "world")
    recorders = [Recorder(r, record) for r in range(ranks)]
    results: list[Any] = [None] * ranks

    def spawn(rank: int) -> None:
        comm = VirtualCommunicator(shared, group, rank, recorders[rank])

        def body() -> None:
            try:
                # A call without * takes one C stack frame less, and each switch copies the C stack.
                results[rank] = program(comm, *args) if args else program(comm)
            except Exception:
                shared.scheduler.turn()  # another rank may fail at an earlier time
                raise

        shared.scheduler.spawn(shared.fiber(rank, "main"), body)

    for rank in range(ranks):
        spawn(rank)
    shared.run()
    failure = shared.scheduler.failure or shared.unheard()
    shared.forget()
    if failure is not None:
        try:
            raise _with_origin(*failure, ranks)
        finally:
            del failure  # the error has this frame in its traceback
    if remains := [*group.unreceived(), *shared.open.rows()]:
        warnings.warn(listed_below("the program has ended, but", remains), UnmatchedMessage, stacklevel=4)
    spans = [span for recorder in recorders for span in recorder.spans()]
    return results, spans, shared.scheduler.end_s


class _Collector:
    """Python's garbage collector, which the runs of all threads share."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._before = gc.get_threshold()
        self._ranks: list[int] = []  # of each run under way

    @contextmanager
    def rarely(self, ranks: int) -> Iterator[None]:
        """Make it collect cyclic garbage less often: many ranks hold many objects, and nearly none is garbage."""
        with self._lock:
            if not self._ranks:
                self._before = gc.get_threshold()
            self._ranks.append(ranks)
            gc.set_threshold(max(100_000, 200 * max(self._ranks)), 50, 1000)
        try:
            yield
        finally:
            with self._lock:
                self._ranks.remove(ranks)
                if not self._ranks:
                    gc.set_threshold(*self._before)


_COLLECTOR = _Collector()


def _with_origin(fiber: Fiber, error: BaseException, ranks: int) -> BaseException:
    """The error of a rank, as the caller of the run sees it."""
    if isinstance(error, SystemExit):  # the exit of a rank must not end the caller
        error = RankFailed(f"{fiber.label()} of {ranks} called sys.exit({error.code!r})").with_traceback(
            error.__traceback__
        )
    error.add_note(f"raised on {fiber.label()} of {ranks}, {fiber.clock_s:.9g} virtual seconds after the start")
    return error
