"""Watched: a communicator that records what its rank holds, whenever it sends, receives or meets the others.

It is made for the cluster of `watch`, on which a step takes a second.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.arrays.kind import address
from simdist.collectives.contributions import Code, Pieces, State
from simdist.comm import ANY, Communicator, Request, Status
from simdist.comm.peers import Peers, Views

__all__ = ["Watch", "Watched"]


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
