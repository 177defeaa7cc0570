"""Stream: a stream of a real rank, on its own thread."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from simdist.arrays import inheriting
from simdist.comm.communicator import Communicator
from simdist.comm.line import WORK, Line
from simdist.comm.stream import Stream, Work, check_call
from simdist.errors import DeadlockError

__all__ = ["ThreadStream", "ThreadWork", "running_stream"]

_PREFIX = "simdist "  # of a thread's name, before its stream's


def running_stream(line: Line) -> str:
    """The stream that runs: this one, if the caller's thread is its."""
    if threading.get_ident() == line.thread_id:
        return line.name
    thread = threading.current_thread()
    return "main" if thread is threading.main_thread() else thread.name.removeprefix(_PREFIX)


class ThreadWork(Work):
    """A call that runs on the thread of a `ThreadStream`, whose communicator, line and asker it gets."""

    def __init__(self, call: Callable[[], Any], comm: Communicator, line: Line, asker: Line) -> None:
        self._call = call
        self._comm = comm
        self._line = line
        self._asker = asker
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def perform(self) -> None:
        """Make the call on the thread, which may be new to the device; an error is kept for `wait`."""
        try:
            self._comm.device.enter()
            self._result = self._call()
        except BaseException as error:
            self._error = error
            self._line.failures.append(error)
        self._done.set()

    def wait(self) -> Any:
        """See Work.

        Raises:
            DeadlockError: it is called by earlier work of the same stream, which runs first.
        """
        if not self._done.is_set():
            if threading.get_ident() == self._line.thread_id:
                raise DeadlockError(f"stream {self._line.name!r} waits for work that it is to do later")
            start_s, line = self._comm.clock(), self._asker
            if (stream := running_stream(line)) != line.name:  # it waits; what the asker waits for stays as it is
                line = Line(stream)
            line.waiting = WORK, None, self._line.name, 0
            try:
                self._done.wait()
            finally:
                line.waiting = None
            name = f"wait for {self._line.name}"
            self._comm.recorder.add(line.name, name, start_s, self._comm.clock())
        if self._error is not None:
            raise self._line.failures.pop(0) if self._error in self._line.failures else self._error
        return self._result


class ThreadStream(Stream):
    """A stream that runs its work on a thread, which starts with the first work.

    Args:
        comm: the communicator's twin for this stream; no other thread may use it.
        line: this stream as the watchdog sees it.
        asker: the stream that made this one.
    """

    def __init__(self, comm: Communicator, line: Line, asker: Line) -> None:
        self.comm = comm
        self._line = line
        self._asker = asker
        self._works: SimpleQueue[ThreadWork | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> ThreadWork:
        """See Stream."""
        check_call(self._line.name, function, (*args, *kwargs.values()))
        call = inheriting(function)
        work = ThreadWork(lambda: call(*args, **kwargs), self.comm, self._line, self._asker)
        if self._thread is None:
            # A daemon: an exception on the main thread must end the process even while this thread waits.
            self._thread = threading.Thread(target=self._serve, name=_PREFIX + self._line.name, daemon=True)
            self._thread.start()
            self._line.thread_id = self._thread.ident or 0
        self._works.put(work)
        return work

    def drain(self) -> None:
        """Wait for all work, and end the thread.

        Raises:
            BaseException: the first error of work that no `wait` has raised.
        """
        if self._thread is not None:
            self._works.put(None)
            before, self._asker.waiting = self._asker.waiting, (WORK, None, self._line.name, 0)
            self._thread.join()
            self._asker.waiting = before  # a group that is freed waits for more than this
            self._thread = None
        if self._line.failures:
            raise self._line.failures[0]

    def _serve(self) -> None:
        while (work := self._works.get()) is not None:
            work.perform()
            del work  # it refers to its arguments, which would stay until the next comes
