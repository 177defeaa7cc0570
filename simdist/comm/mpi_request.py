"""Requests: nonblocking sends and receives of real ranks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simdist.arrays import Array
from simdist.comm.request import Request, Status

if TYPE_CHECKING:
    from simdist.comm.mpi_messages import MpiMessages

__all__ = ["Receiving", "Sending"]


@dataclass(eq=False, repr=False)
class _Posted(Request):
    """A message that MPI works on, since `_start_s` on this process's clock."""

    _comm: "MpiMessages"
    _request: Any  # mpi4py's
    _x: Array
    _peer: int
    _tag: int
    _start_s: float


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
