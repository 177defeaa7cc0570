"""Block: a part of a rank's work that becomes one span of the record."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simdist.comm.communicator import Communicator

__all__ = ["Block"]


class Block:
    """A context manager: what happens inside it becomes one span.

    Args:
        comm: the communicator of the rank.
        name, num_bytes, micro_batch, detail: of the span.
    """

    __slots__ = ("_comm", "_detail", "_entered", "_micro_batch", "_name", "_num_bytes", "_outer", "_start_s")

    def __init__(self, comm: "Communicator", name: str, num_bytes: int, micro_batch: int, detail: str) -> None:
        self._comm = comm
        self._name = name
        self._num_bytes = num_bytes
        self._micro_batch = micro_batch
        self._detail = detail

    def __enter__(self) -> "Block":
        comm = self._comm
        self._outer = outer = comm.doing
        self._entered = comm.entered
        comm.doing = f"{outer} > {self._name}" if outer else self._name
        comm.entered = comm.num_messages
        self._start_s = comm.clock()
        return self

    def __exit__(self, *_: object) -> None:
        comm = self._comm
        comm.doing = self._outer
        comm.entered = self._entered
        span = comm.stream_name, self._name, self._start_s, comm.clock(), self._num_bytes
        comm.recorder.add(*span, micro_batch=self._micro_batch, detail=self._detail)
