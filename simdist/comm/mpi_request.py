"""Requests: nonblocking sends and receives of real ranks."""

from typing import TYPE_CHECKING, Any

from simdist.arrays import Array
from simdist.comm.request import Request, Status

if TYPE_CHECKING:
    from simdist.comm.mpi_messages import MpiMessages

__all__ = ["Receiving", "Sending"]


class _Posted(Request):
    """A message that MPI works on.

    Args:
        comm: the communicator.
        request: mpi4py's request.
        x, peer, tag: as given.
        start_s: when it was posted, on this process's clock.
    """

    __slots__ = ("_comm", "_peer", "_request", "_start_s", "_tag", "_x")

    def __init__(self, comm: "MpiMessages", request: Any, x: Array, peer: int, tag: int, start_s: float) -> None:
        self._comm = comm
        self._request = request
        self._x = x
        self._peer = peer
        self._tag = tag
        self._start_s = start_s


class Sending(_Posted):
    """A nonblocking send."""

    @property
    def over(self) -> bool:
        """See Request. If true, the array may be changed."""
        return bool(self._request.Test())

    def _finish(self) -> Status:
        """Block until the array may be changed; the status names the receiver."""
        self._comm.guard.open.pop(self, None)
        self._comm.finish("send", self._request, self._x, self._peer, self._tag)
        self._comm.note("send", self._start_s, self._x.nbytes, self._peer, self._tag)
        return Status(self._peer, self._tag, self._x.nbytes)


class Receiving(_Posted):
    """A nonblocking receive."""

    def _finish(self) -> Status:
        self._comm.guard.open.pop(self, None)
        status = self._comm.finish("recv", self._request, self._x, self._peer, self._tag)
        return self._comm.received(self._start_s, self._x, status)
