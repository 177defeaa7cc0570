"""Watch: a collective as it is executed, step by step: which rank holds whose contributions to what.

The ranks work with numbers that encode their contributors (see Contributions), so that any algorithm can be watched. A
rank's communicator records what it holds, whenever it sends, receives or meets the others.

Time advances in steps. On this cluster a message of any length arrives one second after it has been sent; a send
occupies its rank for that second, and so does a receive. So step k ends at second k.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simdist.arrays import Array, Partition, partition, reduction
from simdist.arrays.kind import address
from simdist.cluster import Cluster, Device, Link
from simdist.collectives.contributions import MOST_RANKS, Code, Pieces, State
from simdist.collectives.cost import Case
from simdist.collectives.names import collective
from simdist.collectives.perform import IN_PLACE
from simdist.collectives.registry import ARGUMENTS, find
from simdist.comm import ANY, Communicator, Request, Status
from simdist.comm.peers import Peers, Views
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, require_known
from simdist.trace import Trace

__all__ = ["Watch", "Watched", "watched"]

_ITEMS_PER_CHUNK = 4  # enough for algorithms that cut chunks again, in halves or quarters
_STEP = Link(latency_s=1.0, bytes_per_s=1e18)
_CLUSTER = Cluster("steps", Device("at once", 1e18, 1e18, 1e18), inside=_STEP, between=_STEP)


def watched(
    operation: str,
    algorithm: str | Callable[[Array, Communicator], object],
    ranks: int,
    *,
    root: int = 0,
    ranks_per_node: int = 0,
    **options: Any,
) -> Trace:
    """Perform a collective on virtual ranks, step by step; the record has spans "state" (see State).

    Args:
        operation, algorithm: "all_reduce", "ring"; any but barrier, which moves nothing. Instead of a name, a
            function of your own: own(x, comm) does with x what this operation does in place, such as an all_reduce.
        ranks: 1 to 16.
        root: of a rooted collective.
        ranks_per_node: 0 for all on one node.
        options: the algorithm's own.

    Raises:
        UnknownNameError: no such collective, algorithm or option.
        ArgumentError: no such case, too many ranks, or a barrier.
    """
    operation = collective(operation)
    name, run = _named(operation, algorithm, options)
    if operation == "barrier":
        raise ArgumentError("a barrier moves no data: there is nothing to watch")
    if not 1 <= ranks <= MOST_RANKS:
        raise ArgumentError(
            f"cannot watch {ranks} ranks; needs 1 to {MOST_RANKS}, whose contributions fit into 64 bits"
        )
    case = Case(ranks, 0, root=root, ranks_per_node=ranks_per_node)
    cluster = _CLUSTER.with_(devices_per_node=case.per_node)
    _, spans, _ = run_virtual(_program, case.ranks, cluster, (operation, name, run, case.root, options))
    return Trace(spans, case.ranks)


def _program(
    comm: Communicator, operation: str, name: str, run: Callable[..., Any], root: int, options: dict[str, Any]
) -> None:
    """One rank's part in the collective."""
    p = comm.size
    places = partition(p if operation == "all_to_all" else _ITEMS_PER_CHUNK * p, p)
    code = Code(p, places.n)
    watch = Watch(comm, code, _goal(operation, places, root), f"{operation} {name}")
    x = code.of(comm.rank)
    chunk = places[comm.rank]
    if operation == "broadcast" and comm.rank != root:
        x[:] = 0
    elif operation == "scatter" and comm.rank != root:
        x = x[:0]
    elif operation == "gather":
        x = x[chunk].copy()
    elif operation == "all_gather":
        x[: chunk.start] = x[chunk.stop :] = 0
    watch.track(x)
    watch.record()
    given = {"x": x, "comm": Watched(comm, watch), "op": reduction("sum"), "chunks": list(places), "root": root}
    if operation == "all_to_all":
        given |= {"x": x.reshape(p, 1), "y": np.zeros((p, 1), np.int64)}
        watch.track(given["y"])
    result = run(*(given[name] for name in ARGUMENTS[operation]), **options)
    if result is not None and operation not in IN_PLACE:
        watch.track(result)
    watch.record()


def _named(
    operation: str, algorithm: str | Callable[[Array, Communicator], object], options: dict[str, Any]
) -> tuple[str, Callable[..., Any]]:
    """The name and the function of an algorithm; the caller's own takes only the array and the communicator."""
    if isinstance(algorithm, str):
        found = find(operation, algorithm)
        found.check_options(options)
        return found.name, found.run
    require_known("collective that works in place", operation, IN_PLACE)
    return getattr(algorithm, "__name__", "of your own"), lambda x, comm, *_, **options: algorithm(x, comm, **options)


def _goal(operation: str, places: Partition, root: int) -> tuple[Pieces, ...]:
    """What the final value of each place is made of."""
    if operation in ("broadcast", "scatter"):
        return (((root,),),) * places.n
    if operation in ("all_gather", "gather"):
        return tuple(((rank,),) for rank, chunk in enumerate(places) for _ in range(chunk.start, chunk.stop))
    everybody = range(places.p)
    if operation == "all_to_all":
        return (tuple((rank,) for rank in everybody),) * places.n
    return ((tuple(everybody),),) * places.n


# -- the communicator that records ------------------------------------------------------------------------


class Watch:
    """Tracks all memory that one rank is known to have written, and records what it holds."""

    def __init__(self, comm: Communicator, code: Code, goal: tuple[Pieces, ...], title: str) -> None:
        self._comm, self._code, self._goal, self._title = comm, code, goal, title
        self._tracked: dict[tuple[int, int], Array] = {}
        self._last: tuple[Pieces, ...] | None = None

    def track(self, x: Array) -> None:
        """From now on this part of an array counts. Other memory may hold leftovers of other ranks."""
        flat = x.reshape(-1)
        self._tracked[address(flat), flat.size] = flat

    def receive(self, x: Array, src: int) -> None:
        """A message from the global rank src has come into x: it counts, and the state with it is recorded."""
        self.track(x)
        self.record((src, tuple(sorted({i for i, _ in self._code.read(x)}))))

    def record(self, *takes: tuple[int, tuple[int, ...]]) -> None:
        """Record what the rank holds, if that is new."""
        holds = self._code.holdings(self._tracked.values())
        if not takes and holds == self._last:
            return
        self._last = holds
        now_s = self._comm.clock()
        state = State(self._comm.rank, round(now_s), holds, takes, self._goal, self._title)
        self._comm.recorder.add("states", "state", now_s, now_s, detail=state.detail())


def _rest(comm: Communicator, until_s: float) -> None:
    """Wait until then."""
    rest_s = until_s - comm.clock()
    if rest_s > 1e-6:
        comm.compute(seconds=rest_s, name="wait")


class _Sending(Request):
    """A send that occupies its sender for a whole step."""

    def __init__(self, request: Request, comm: Communicator) -> None:
        self._request, self._comm = request, comm
        self._end_s = comm.clock() + 1

    def _finish(self) -> Status:
        status = self._request.wait()
        _rest(self._comm, self._end_s)
        return status


class _Receiving(Request):
    """A receive whose array stays as it was until the receive is waited for, and counts from then on."""

    def __init__(self, comm: Communicator, watch: Watch, x: Array, src: int, tag: int, until_s: float = 0.0) -> None:
        self._comm, self._watch, self._x, self._until_s = comm, watch, x, until_s
        self._arrived = np.empty_like(x)
        self._request = comm.irecv(self._arrived, src, tag)

    def _finish(self) -> Status:
        status = self._request.wait()
        _rest(self._comm, self._until_s)
        items = status.num_bytes // self._x.itemsize
        into = self._x.reshape(-1)[:items]
        into[:] = self._arrived.reshape(-1)[:items]
        self._watch.receive(into, self._comm.ranks[status.src])
        return status


@Communicator.register
class Watched:
    """A communicator that records what its rank holds at every call; what is not defined here is done as by `comm`.

    Args:
        comm: does the work.
        watch: records.
    """

    barrier, send = Communicator.barrier, Communicator.send

    def __init__(self, comm: Communicator, watch: Watch) -> None:
        self._comm, self._watch = comm, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def recv(self, x: Array, src: int = ANY, tag: int = ANY) -> Status:
        """See Communicator. It occupies its rank for a whole step, as a send does."""
        self._watch.record()
        return _Receiving(self._comm, self._watch, x, src, tag, self._comm.clock() + 1).wait()

    def sendrecv(self, x: Array, dst: int, y: Array, src: int) -> None:
        """See Communicator."""
        receiving, sending = self.irecv(y, src, 0), self.isend(x, dst, 0)
        sending.wait()
        receiving.wait()

    def isend(self, x: Array, dst: int, tag: int = 0) -> Request:
        """See Communicator."""
        self._watch.track(x)
        self._watch.record()
        return _Sending(self._comm.isend(x, dst, tag), self._comm)

    def irecv(self, x: Array, src: int = ANY, tag: int = ANY) -> Request:
        """See Communicator."""
        self._watch.record()
        return _Receiving(self._comm, self._watch, x, src, tag)

    def split(self, color: int | None, key: int = 0) -> "Watched | None":
        """See Communicator."""
        group = self._comm.split(color, key)
        return None if group is None else Watched(group, self._watch)

    @property
    def shadow(self) -> "Watched":
        """See Communicator."""
        return Watched(self._comm.shadow, self._watch)

    def peers(self) -> "_WatchedPeers":
        """See Communicator."""
        return _WatchedPeers(self._comm.peers(), self._watch)


class _WatchedPeers:
    """Peers that are watched whenever they meet; what is not defined here is theirs."""

    def __init__(self, peers: Peers, watch: Watch) -> None:
        self._peers, self._watch = peers, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peers, name)

    def meet(self) -> None:
        """See Peers."""
        self._watch.record()
        self._peers.meet()
        self._watch.record()

    def show(self, x: Array, ahead: bool = False) -> Views | None:
        """See Peers."""
        self._watch.record()
        return self._peers.show(x, ahead)

    def post(self, *parts: Array) -> Sequence[Array]:
        """See Peers."""
        self._watch.record()
        return self._peers.post(*parts)

    def moved(self, *args: Any, **counts: Any) -> None:
        """See Peers."""
        self._peers.moved(*args, **counts)
        self._watch.record()
