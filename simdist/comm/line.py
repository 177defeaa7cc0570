"""Line: what one stream of this rank waits for, as the watchdog sees it."""

import runpy
import sys
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simdist.comm.communicator import ANY
from simdist.comm.open_requests import with_tag
from simdist.words import listed

__all__ = ["END", "EXIT", "MEETING", "START", "WORK", "Line", "Wait", "awaited", "traceback_of"]

Wait = tuple[str, Any, Any, int]
"""(what, communicator, peers, tag): peers is a rank of the communicator, (dst, src) of a sendrecv, ANY, or None (all).

Every wait makes a new tuple: by its identity the watchdog distinguishes one long wait from many short ones."""

WORK = "work"  # a wait for another stream of the same rank, whose own waits have deadlines
START, END = "the start of MPI", "the end of MPI"  # may take longer than a message
MEETING = -3  # the tag of a wait for a rank to arrive at a meeting
_LONG_S = 1.0  # a wait that is worth a look at what has come
EXIT = "exit"  # the program has ended, and the rank waits for the others to end


@dataclass(eq=False, slots=True)
class Line:
    """A stream as the watchdog sees it.

    Attributes:
        name: the stream.
        thread_id: the thread that runs it.
        waiting: its current wait; None while it computes.
        count: how many messages it has sent and received.
        failures: the errors of its work that no `wait` has raised yet, in their order.
    """

    name: str
    waiting: Wait | None = None
    count: int = 0
    failures: list[BaseException] = field(default_factory=list)
    thread_id: int = field(default_factory=threading.get_ident)

    def words(self, wait: Wait | None) -> str:
        """A description of this wait."""
        if wait is None:
            return "is running, not waiting"
        what, comm, peers, tag = wait
        if what == EXIT:
            return "has ended its program and waits for the others to end theirs"
        if what == WORK:
            return f"waits for work on its stream {peers!r}"
        if comm is None:
            return f"waits in {what} for the other ranks of the job"
        ranks = comm.ranks
        if peers is None:
            others = listed(r for r in ranks if r != ranks[comm.rank])
            return f"waits in {what} on {comm.context!r} for {others}{self._where(comm, 0)}"
        if what == "sendrecv":
            dst, src = (ranks[peer] for peer in peers)
            return f"waits to send to rank {dst} and receive from rank {src}{self._where(comm, 0)}"
        peer = "any rank" if peers == ANY else f"rank {ranks[peers]}"
        if tag == MEETING:
            return f"waits in {what} on {comm.context!r} for {peer}{self._where(comm, 0)}"
        return f"waits to {'send to' if what == 'send' else 'receive from'} {peer}{self._where(comm, tag)}"

    def at_length(self, wait: Wait | None, waited_s: float) -> str:
        """A description of this wait after so many seconds; of a long one, also of the message that came instead."""
        if wait is None:
            return self.words(wait)
        instead = self._instead(wait) if waited_s > _LONG_S else ""
        return f"{self.words(wait)}{instead}, for {waited_s:.1f} s"

    def _instead(self, wait: Wait) -> str:
        """The message that waits to be received where this wait is for one with another tag; empty if there is none."""
        what, comm, peers, tag = wait
        if what not in ("recv", "sendrecv"):
            return ""
        come = comm.come(peers[1] if what == "sendrecv" else peers)
        if come is None or come.tag == tag:  # it is being received just now
            return ""
        return f" (a message with tag {come.tag} has come from rank {comm.ranks[come.src]})"

    def _where(self, comm: Any, tag: int) -> str:
        """The end of the sentence: the tag, the operation and its progress, the stream."""
        text = with_tag(tag)
        if comm.doing:
            text += f" in {comm.doing}, after {self.count - comm.entered} of its messages"
        return text + (f" (stream {self.name!r})" if self.name != "main" else "")

    def stack(self) -> str:
        """The innermost eight calls of its thread in the program's own files."""
        frame = sys._current_frames().get(self.thread_id)
        frames = [f for f in traceback.extract_stack(frame) if not f.filename.startswith(_NOT_THE_PROGRAM)]
        return "".join(traceback.format_list(frames[-8:])) if frame else ""


_NOT_THE_PROGRAM = (
    *(str(Path(__file__).parent.parent / layer) for layer in ("comm", "launch")),
    *(threading.__file__, runpy.__file__, "<frozen "),
)
"""Prefixes of the files that are left out of a program's traceback."""


def awaited(wait: Wait) -> tuple[bool, list[int]]:
    """(every, ranks): the wait cannot end once one of these global ranks has ended; if `every`, once all have."""
    what, comm, peers, _ = wait
    if comm is None:
        return True, []
    ranks = comm.ranks
    me = ranks[comm.rank]
    if peers is None:
        return False, [r for r in ranks if r != me]
    if what == "sendrecv":
        # Only the receive: the message to dst may have arrived before that rank left.
        return False, [ranks[peers[1]]]
    if peers == ANY:
        return True, [r for r in ranks if r != me]
    return False, [ranks[peers]]


def traceback_of(error: BaseException) -> str:
    """The traceback as text, from the first frame in the program's own files."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_NOT_THE_PROGRAM):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
