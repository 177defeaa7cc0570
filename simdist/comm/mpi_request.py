"""Requests: nonblocking sends and receives of real ranks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simdist.arrays import Array
from simdist.comm.request import Request, Status

if TYPE_CHECKING:
    from simdist.comm.mpi_messages import MpiMessages

__all__ = ["Receiving", "Sending"]


@dataclass(eq=False, repr=False)
class Sending(Request):
    """A nonblocking send of x, whole or in pieces, each with a request of mpi4py's."""

    _comm: "MpiMessages"
    _requests: list[Any]
    _x: Array
    _dst: int
    _tag: int
    _start_s: float

    @property
    def over(self) -> bool:
        """See Request. If true, the array may be changed."""
        return all(request.Test() for request in self._requests)

    def _finish(self) -> Status:
        """Block until the array may be changed; the status names the receiver."""
        self._comm.guard.open.pop(self, None)
        for request in self._requests:
            self._comm.finish("send", request, self._x, self._dst, self._tag)
        self._comm.note("send", self._start_s, self._x.nbytes, self._dst, self._tag)
        return Status(self._dst, self._tag, self._x.nbytes)


@dataclass(eq=False, repr=False)
class Receiving(Request):
    """A nonblocking receive."""

    _comm: "MpiMessages"
    _request: Any
    _x: Array
    _src: int
    _tag: int
    _start_s: float

    def _finish(self) -> Status:
        self._comm.guard.open.pop(self, None)
        status = self._comm.finish("recv", self._request, self._x, self._src, self._tag)
        return self._comm.received(self._start_s, self._x, status)
