"""Staging: messages between GPU arrays for an MPI without GPU support, through pinned host memory.

A long message is sent in pieces, through two buffers of one piece each: one piece is copied while another is in flight.

    sender      copy 0 | copy 1 | copy 2 | copy 3            device to host
    MPI                |   0    |   1    |   2    |   3
    receiver                    | copy 0 | copy 1 | copy 2   host to device

A piece shorter than PIECE_BYTES is the last; so a message whose length is a multiple of it ends with an empty piece. On
the record it is one message, regardless of its pieces. Both of its ends must be on devices, unless it is short.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from simdist.arrays import Array
from simdist.arrays.kind import device_library
from simdist.comm.communicator import ANY
from simdist.comm.mpi_request import Sending
from simdist.comm.request import Request, Status
from simdist.errors import MessageMismatch

if TYPE_CHECKING:
    from simdist.comm.mpi_messages import MpiMessages

__all__ = ["PIECE_BYTES", "Staging", "pieces", "ready"]

PIECE_BYTES = 4 << 20


def ready(x: Array) -> Array:
    """x as bytes for an MPI that accepts device memory, after pending kernels: MPI does not know CUDA's streams."""
    device_library().synchronize()
    return x.reshape(-1).view(np.uint8)


def pieces(num_bytes: int) -> list[slice]:
    """The pieces of a message; the last one is shorter than the others, and may be empty."""
    return [slice(at, min(at + PIECE_BYTES, num_bytes)) for at in range(0, num_bytes + 1, PIECE_BYTES)]


class Staging:
    """Sends and receives device arrays for a communicator."""

    def __init__(self, comm: "MpiMessages") -> None:
        self.comm = comm
        self._device = device_library()
        self._rooms: dict[str, list[Array]] = {}

    def send(self, x: Array, dst: int, tag: int) -> None:
        """See Communicator."""
        start_s = perf_counter()
        for _ in self._outgoing(x, dst, tag):
            pass
        self.comm.note("send", start_s, x.nbytes, dst, tag)

    def recv(self, x: Array, src: int, tag: int) -> Status:
        """See Communicator."""
        start_s = perf_counter()
        *_, status = self._incoming(x, src, tag)
        self.comm.note("recv", start_s, status.num_bytes, status.src, status.tag)
        return status

    def sendrecv(self, x: Array, dst: int, y: Array, src: int) -> None:
        """See Communicator. Pieces of x and y alternate, so that neither side waits for one that is not sent yet."""
        start_s, num_bytes = perf_counter(), 0
        for received, _ in zip_longest(self._incoming(y, src, 0), self._outgoing(x, dst, 0)):
            num_bytes = received.num_bytes if received else num_bytes
        self.comm.note("send", start_s, x.nbytes, dst, 0)
        self.comm.note("recv", start_s, num_bytes, src, 0)

    def isend(self, x: Array, dst: int, tag: int) -> Sending:
        """See Communicator. All of x is copied to the host first; the request keeps the copy."""
        host = self._device.pinned(x.nbytes)
        start_s, stream = perf_counter(), self._side
        stream.after_arrays()
        self._device.copy_out(x, host, stream.raw)
        stream.raw.synchronize()
        requests = [self.comm.post("isend", host[piece], dst, tag) for piece in pieces(x.nbytes)]
        return Sending(self.comm, requests, host, dst, tag, start_s)

    def irecv(self, x: Array, src: int, tag: int) -> "StagedReceiving":
        """See Communicator. From a known source, all possible pieces are posted at once.

        Where a message is shorter than x by a piece or more, the next one under its tag must not come before `wait`: it
        would match a piece of this one, and `wait` raises MessageMismatch.
        """
        host = self._device.pinned(x.nbytes)
        known = src != ANY and tag != ANY
        parts = pieces(x.nbytes) if known else pieces(x.nbytes)[:1]
        requests = [self.comm.post("irecv", host[piece], src, tag) for piece in parts]
        return StagedReceiving(self, x, host, requests, src, tag)

    # -- pieces -----------------------------------------------------------------------------------------

    def _outgoing(self, x: Array, dst: int, tag: int) -> Iterator[None]:
        """Copy and post a piece, then yield; at the end wait for the last two."""
        data, rooms, stream = x.reshape(-1).view(np.uint8), self._pair("out"), self._side
        requests: list[Any] = [None, None]
        stream.after_arrays()
        for k, piece in enumerate(pieces(x.nbytes)):
            i, part = k % 2, data[piece]
            if requests[i] is not None:
                self.comm.finish("send", requests[i], x, dst, tag)
            host = rooms[i][: part.nbytes]
            if part.nbytes:
                self._device.copy_out(part, host, stream.raw)
                stream.raw.synchronize()
            requests[i] = self.comm.post("isend", host, dst, tag)
            yield
        for request in requests:
            if request is not None:
                self.comm.finish("send", request, x, dst, tag)

    def _incoming(self, x: Array, src: int, tag: int) -> Iterator[Status]:
        """Post a receive for a piece, yield, then wait for it and start its copy; until the last piece.

        Yields the status of the pieces received so far; at the end that of all.
        """
        total_bytes = 0
        data, rooms, stream = x.reshape(-1).view(np.uint8), self._pair("in"), self._side
        copied: list[Any] = [None, None]
        stream.after_arrays()  # pending work on x comes first
        try:
            for k, piece in enumerate(pieces(x.nbytes)):
                i, part = k % 2, data[piece]
                if copied[i] is not None:
                    copied[i].synchronize()
                host = rooms[i][: part.nbytes]
                request = self.comm.post("irecv", host, src, tag)
                yield Status(src, tag, total_bytes)
                status = self.comm.finish("recv", request, x, src, tag)
                num_bytes = self.comm.length(status, "recv", part, src)
                src, tag, total_bytes = status.Get_source(), status.Get_tag(), total_bytes + num_bytes
                if num_bytes:
                    self._device.copy_in(part[:num_bytes], host, stream.raw)
                    copied[i] = self._device.Event()
                    copied[i].record(stream)
                if num_bytes < PIECE_BYTES:
                    break
        finally:
            stream.raw.synchronize()  # now x may be used or freed, and the buffers are free for the next message
        yield Status(src, tag, total_bytes)

    def deliver(self, x: Array, host: Array, num_bytes: int) -> None:
        """Copy the received bytes into x."""
        if num_bytes:
            stream = self._side
            stream.after_arrays()
            self._device.copy_in(x.reshape(-1).view(np.uint8)[:num_bytes], host, stream.raw)
            stream.raw.synchronize()

    def _pair(self, name: str) -> list[Array]:
        if name not in self._rooms:
            self._rooms[name] = [self._device.pinned(PIECE_BYTES) for _ in range(2)]
        return self._rooms[name]

    @cached_property
    def _side(self) -> Any:
        """The CUDA stream for copies."""
        return self._device.Stream()


@dataclass(eq=False, repr=False)
class StagedReceiving(Request):
    """A nonblocking receive into a device array."""

    _staging: Staging
    _x: Array
    _host: Array
    _requests: list[Any]
    _src: int
    _tag: int
    _start_s: float = field(default_factory=perf_counter)

    def _finish(self) -> Status:
        """Receives for pieces that the message does not have are cancelled."""
        comm, src, tag, total_bytes = self._staging.comm, self._src, self._tag, 0
        comm.guard.open.pop(self, None)
        for k, piece in enumerate(pieces(self._x.nbytes)):
            room = self._host[piece]
            if k == len(self._requests):
                self._requests.append(comm.post("irecv", room, src, tag))
            status = comm.finish("recv", self._requests[k], self._x, src, tag)
            num_bytes = comm.length(status, "recv", room, src)
            src, tag, total_bytes = status.Get_source(), status.Get_tag(), total_bytes + num_bytes
            if num_bytes < PIECE_BYTES:
                break
        for request in self._requests[k + 1 :]:
            request.Cancel()
            if not comm.finish("recv", request, self._x, src, tag).Is_cancelled():
                raise MessageMismatch(
                    f"irecv on rank {comm.rank} of {comm.context!r}: the message from rank {src} is shorter than the "
                    f"{self._x.nbytes} bytes posted for it, and the next message filled the rest"
                )
        self._staging.deliver(self._x, self._host, total_bytes)
        comm.note("recv", self._start_s, total_bytes, src, tag)
        return Status(src, tag, total_bytes)
