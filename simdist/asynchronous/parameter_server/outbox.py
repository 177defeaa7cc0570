"""Outbox: a server's messages to workers, sent without waiting."""

from collections.abc import Callable

from simdist.asynchronous.parameter_server.layout import Layout
from simdist.asynchronous.parameter_server.message import ANSWER, Kind, Message
from simdist.comm import Communicator, Request
from simdist.errors import PeerLost

__all__ = ["Outbox"]


class Outbox:
    """Sends answers, and keeps their memory until they have been received.

    A worker has one open request at a time. So when its next request comes, the previous answer has arrived, and
    waiting for that takes no time; only unsolicited notices may still be in flight.

    Args:
        comm: all ranks, servers and workers.
        sent: called with the worker for each message sent.
    """

    def __init__(self, comm: Communicator, layout: Layout, sent: Callable[[int], None]) -> None:
        self._comm = comm
        self._layout = layout
        self._sent = sent
        self._sends: dict[int, list[Request]] = {}
        self._lost: list[Request] = []  # that will never be received

    def send(self, worker: int, message: Message) -> None:
        """Send without waiting."""
        if message.kind != Kind.OVER:
            self._finish(worker)
        self._sent(worker)
        try:
            request = self._comm.isend(message.packed(), self._layout.rank_of(worker), ANSWER)
        except PeerLost:  # the next receive raises it too
            return
        self._sends.setdefault(worker, []).append(request)

    def drop(self, worker: int) -> None:
        """This worker has died: do not wait for its messages."""
        self._lost += self._sends.pop(worker, [])

    def finish(self) -> None:
        """Return when all messages sent have been received."""
        for worker in list(self._sends):
            self._finish(worker)

    def _finish(self, worker: int) -> None:
        for request in self._sends.pop(worker, ()):
            try:
                request.wait()
            except PeerLost:
                self._lost.append(request)
