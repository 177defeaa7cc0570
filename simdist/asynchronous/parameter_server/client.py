"""Client: how a worker talks to the servers."""

from typing import NamedTuple

import numpy as np

from simdist.arrays import Array, moved
from simdist.asynchronous.parameter_server.layout import Layout
from simdist.asynchronous.parameter_server.message import ANSWER, HEADER_BYTES, REQUEST, Kind, Message
from simdist.comm import Communicator
from simdist.errors import ArgumentError, ArrayError, PeerLost

__all__ = ["WAIT", "Client", "Rows"]

WAIT = "wait for weights"
"""The span of a worker's wait for answers."""


class Rows(NamedTuple):
    """A gradient that is zero outside some rows of the flat vector.

    Attributes:
        rows: row numbers, integers of shape (k,); values of a repeated row are added.
        values: shape (k, row_width), of the weights' dtype.
    """

    rows: Array
    values: Array

    def once(self) -> "Rows":
        """The same gradient with each row once, in ascending order."""
        rows, places = np.unique(self.rows, return_inverse=True)
        if len(rows) == len(self.rows):
            return Rows(rows, self.values[np.argsort(self.rows)])
        values = np.zeros((len(rows), *self.values.shape[1:]), self.values.dtype)
        np.add.at(values, places, self.values)
        return Rows(rows, values)


class Client:
    """The worker's side. Weights are read into the caller's array; pushed arrays may be reused after the call.

    Args:
        comm: all ranks, servers and workers.
        dtype: of weights and gradients.

    Attributes:
        waited_s: the time that it has waited for answers.
        ended: whether the servers have released this worker.

    Cost of a step, a push_pull of all keys, per server j with n_j keys: two messages of 40 bytes + n_j items, one in
    each direction. A row costs 8 bytes besides its items.
    """

    def __init__(self, comm: Communicator, layout: Layout, dtype: np.dtype) -> None:
        self.comm = comm
        self.layout = layout
        self.dtype = np.dtype(dtype)
        self.waited_s = 0.0
        self.ended = False
        self._notice = np.empty(HEADER_BYTES, np.uint8)
        self._packets: dict[int, Array] = {}
        self._dismissed: set[int] = set()  # the servers that continue without this worker

    def pull(self, weights: Array, clock: int = -1, keys: slice | None = None) -> int | None:
        """Read the weights for this clock into weights[keys]; blocks until the servers allow it.

        Args:
            weights: shape (num_keys,); only these keys are changed.
            clock: the number of updates that this worker has pushed; -1 if unknown.
            keys: all if None.

        Returns:
            The clock of the weights: the one given, or a later one if that step is over; None if a server considers
            this worker dead and continues without it.
        """
        servers = []
        for server, part in self.layout.parts(self._checked(weights, keys)):
            if keys is None or part.start < part.stop:
                self._send(server, Message(Kind.PULL, clock, part))
                servers.append(server)
        return self._weights(servers, weights) if servers else clock

    def push(self, clock: int, gradient: Array | Rows, keys: slice | None = None) -> None:
        """Send an update stamped `clock`; the servers ignore a second one with the same stamp.

        Args:
            gradient: shape (keys,), or some rows.
            keys: all if None; the gradient counts as zero elsewhere.
        """
        for server, message in self._updates(Kind.PUSH, clock, gradient, keys):
            self._send(server, message)

    def push_pull(self, clock: int, gradient: Array | Rows, weights: Array) -> int | None:
        """Push an update stamped `clock` and pull the weights for the next clock, in one message each way."""
        self._checked(weights, None)
        servers = []
        for server, message in self._updates(Kind.PUSH_PULL, clock, gradient, None):
            self._send(server, message)
            servers.append(server)
        return self._weights(servers, weights)

    def is_over(self, clock: int, until_s: float) -> int | None:
        """Wait until until_s for the notice that step `clock` is over; returns the current step, or None."""
        comm = self.comm
        while True:
            try:
                if not comm.probe(ANSWER, until_s):
                    return None
                comm.recv(self._notice, tag=ANSWER)  # no request is open, so it is a notice
            except PeerLost:
                if any(rank < self.layout.num_servers for rank in comm.lost()):
                    raise
                continue  # another worker died; the servers handle that
            notice = Message.unpacked(self._notice, self.dtype)
            if notice.clock > clock:
                return notice.clock

    def halt(self) -> None:
        """Request the release of all workers as soon as the rule allows it. Returns before they are released."""
        self._send(0, Message(Kind.HALT))

    def leave(self) -> None:
        """Tell the servers that this worker is done; afterwards none of its messages is in flight."""
        servers = [server for server in range(self.layout.num_servers) if server not in self._dismissed]
        for server in servers:
            self._send(server, Message(Kind.LEAVE))
        for server in servers:
            while self._receive(server).kind != Kind.BYE:
                continue

    # -- messages -------------------------------------------------------------------------------------------

    def _send(self, server: int, message: Message) -> None:
        self.comm.send(message.packed(), server, REQUEST)

    def _receive(self, server: int) -> Message:
        """The next message from this server."""
        if server not in self._packets:
            keys = self.layout.keys(server)
            room = HEADER_BYTES + (keys.stop - keys.start) * self.dtype.itemsize
            self._packets[server] = np.empty(room, np.uint8)
        packet = self._packets[server]
        status = self.comm.recv(packet, server, ANSWER)
        return Message.unpacked(packet[: status.num_bytes], self.dtype)

    def _weights(self, servers: list[int], weights: Array) -> int | None:
        """Wait for the weights from all of these servers; returns the earliest of their clocks."""
        clocks, start_s = [], self.comm.clock()
        with self.comm.span(WAIT):
            for server in servers:
                answer = self._receive(server)
                while answer.kind == Kind.OVER:  # a notice about the previous update
                    answer = self._receive(server)
                if answer.kind in (Kind.WEIGHTS, Kind.END):
                    weights[answer.keys] = moved(answer.values, weights)
                    clocks.append(answer.clock)
                    self.ended |= answer.kind == Kind.END
                else:
                    self._dismissed.add(server)
        self.waited_s += self.comm.clock() - start_s
        return None if self._dismissed else min(clocks)

    def _updates(self, kind: Kind, clock: int, gradient: Array | Rows, keys: slice | None) -> list[tuple[int, Message]]:
        """An update, split among the servers; servers without any of its keys get only its clock."""
        if isinstance(gradient, Rows):
            return self._row_updates(kind, clock, gradient)
        whole = self._checked(gradient, keys, exactly=True)
        return [
            (server, Message(kind, clock, part, gradient[part.start - whole.start : part.stop - whole.start]))
            for server, part in self.layout.parts(whole)
        ]

    def _row_updates(self, kind: Kind, clock: int, gradient: Rows) -> list[tuple[int, Message]]:
        layout, width = self.layout, self.layout.row_width
        if gradient.values.shape != (len(gradient.rows), width) or gradient.values.dtype != self.dtype:
            raise ArrayError(
                f"{len(gradient.rows)} rows with values of shape {gradient.values.shape} and dtype "
                f"{gradient.values.dtype} on rank {self.comm.rank}; needs width {width} and {self.dtype}"
            )
        if gradient.rows.dtype.kind not in "iu":
            raise ArrayError(f"rows of dtype {gradient.rows.dtype} on rank {self.comm.rank}; needs integers")
        rows, values = gradient._replace(rows=gradient.rows.astype(np.int64)).once()  # as they are sent
        count = layout.num_keys // width
        if len(rows) and not 0 <= rows[0] <= rows[-1] < count:
            raise ArgumentError(f"rows {rows[0]} to {rows[-1]} on rank {self.comm.rank}; there are 0 to {count - 1}")
        ends = [np.searchsorted(rows, (held.start, held.stop)) for held in layout.rows]
        return [
            (server, Message(kind, clock, layout.keys(server), values[first:last], rows[first:last]))
            for server, (first, last) in enumerate(ends)
        ]

    def _checked(self, x: Array, keys: slice | None, exactly: bool = False) -> slice:
        """The keys, all if None, after checks of them and of the array that goes with them."""
        keys = slice(0, self.layout.num_keys) if keys is None else keys
        self.layout.check(keys)
        needed = keys.stop - keys.start if exactly else self.layout.num_keys
        if x.shape != (needed,) or x.dtype != self.dtype:
            raise ArrayError(
                f"an array of shape {x.shape} and dtype {x.dtype} for {needed} keys on rank {self.comm.rank}; "
                f"needs shape ({needed},) and dtype {self.dtype}"
            )
        return keys
