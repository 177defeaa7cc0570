"""Checks: argument checks of a communicator. Each raises an error that names the value and the rank."""

from abc import ABC
from collections.abc import Iterable
from math import isfinite, isnan
from typing import Any

import numpy as np

from simdist.arrays import Array, phantom
from simdist.comm.placement import Placement
from simdist.errors import ArgumentError, ArrayError, CollectiveMismatch
from simdist.trace.kind import MESSAGES
from simdist.words import listed

__all__ = ["ANY", "NOTE_BYTES", "Checks", "check_bytes", "cut", "mismatch"]

ANY = -1
"""Any source, any tag."""

NOTE_BYTES = 1000
"""The maximum size of a note in bytes (see `Communicator.exchange`)."""

_MOST_BYTES = (1 << 63) - 1  # of an array, as in NumPy
_MOST_TAG = (1 << 29) - 1  # MPICH's limit; Open MPI's is higher


def check_bytes(what: str, x: Array, rank: int) -> None:
    """Raise ArrayError unless x can be sent and received as plain bytes: contiguous, and without objects."""
    if x.dtype.hasobject:
        raise ArrayError(f"{what} of dtype {x.dtype} on rank {rank}: objects have no bytes to send")
    if not x.flags.c_contiguous:
        given = f"{what} of shape {x.shape} with strides {x.strides} on rank {rank}"
        raise ArrayError(f"{given}: needs to be contiguous, as its copy() is")


def cut(text: str) -> str:
    """The beginning of a text, no longer than a note; bytes of a file's name that are no text are escaped."""
    return text.encode(errors="backslashreplace")[:NOTE_BYTES].decode(errors="ignore")


def mismatch(context: str, said: Iterable[str]) -> CollectiveMismatch:
    """The error for ranks that disagree: it lists each call with its ranks, the most common call first.

    Args:
        context: the name of their communicator.
        said: the call of each rank.
    """
    groups: dict[str, list[int]] = {}
    for rank, what in enumerate(said):
        groups.setdefault(what, []).append(rank)
    rows = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1]))
    text = "\n".join(f"  {listed(ranks)}: {what}" for what, ranks in rows)
    return CollectiveMismatch(f"the ranks of {context!r} call different collectives:\n{text}")


class Checks(ABC):
    """The part of a communicator that checks arguments; `Communicator` documents them."""

    rank: int
    size: int
    nodes: Placement
    context: str
    stream_name: str

    def check_peer(self, role: str, rank: int) -> None:
        """Raise ArgumentError unless rank is a whole number, 0 <= rank < size; `role` is the argument's name."""
        if type(rank) is not int and (isinstance(rank, bool) or not isinstance(rank, (int, np.integer))):
            raise ArgumentError(f"{role} {rank!r} on rank {self.rank}: a rank is a whole number")
        if not 0 <= rank < self.size:
            raise ArgumentError(f"{role} {rank} on rank {self.rank}: this communicator has ranks 0 to {self.size - 1}")

    def check_source(self, src: int) -> bool:
        """Whether a receive from src is one from ANY rank; raises ArgumentError unless it is that, or from a rank."""
        if isinstance(src, (int, np.integer)) and src == ANY:
            return True
        self.check_peer("src", src)
        return False

    def check_contiguous(self, what: str, x: Array) -> None:
        """Raise ArrayError unless x is an array that can be sent as plain bytes; `what` names the call."""
        if not hasattr(x, "flags") or isinstance(x, np.generic):  # a number of NumPy's, which has flags
            raise ArrayError(f"{what} of {type(x).__name__} {x!r} on rank {self.rank}: needs an array")
        check_bytes(what, x, self.rank)

    def check_room(self, what: str, y: Array, tag: int = ANY) -> None:
        """Raise ArrayError unless y can be received into: it is contiguous and writable. Checks the tag, too."""
        self.check_wanted(what, tag)
        self.check_contiguous(what, y)
        if not getattr(y.flags, "writeable", True):  # CuPy's arrays have no such flag
            raise ArrayError(f"{what} on rank {self.rank}: the array to receive into is read-only")

    def check_apart(self, x: Array, y: Array) -> None:
        """Raise ArrayError if x is sent and y received into at the same time, and both are one array or overlap."""
        if x is y and getattr(x, "nbytes", False):
            raise ArrayError(f"sendrecv on rank {self.rank}: x and y are the same array; needs two")
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and np.may_share_memory(x, y):
            raise ArrayError(f"sendrecv on rank {self.rank}: x and y overlap in memory; needs two arrays that do not")

    def check_exchange(self, x: Array, y: Array) -> None:
        """Raise ArrayError unless x can be sent while y is received into."""
        self.check_contiguous("sendrecv", x)
        self.check_room("sendrecv", y)
        self.check_apart(x, y)

    def check_tag(self, what: str, tag: int) -> None:
        """Raise ArgumentError unless a message can have this tag."""
        if isinstance(tag, bool) or not isinstance(tag, (int, np.integer)) or not 0 <= tag <= _MOST_TAG:
            raise ArgumentError(f"{what} with tag {tag!r} on rank {self.rank}: needs a whole number, 0 to {_MOST_TAG}")

    def check_wanted(self, what: str, tag: int) -> None:
        """Raise ArgumentError unless a receive can name this tag: ANY, or that of a message."""
        if not isinstance(tag, (int, np.integer)) or tag != ANY:
            self.check_tag(what, tag)

    def check_probe(self, tag: int, until_s: float) -> None:
        """Raise ArgumentError unless a probe can name this tag, and wait until this time."""
        self.check_wanted("probe", tag)
        try:
            possible = not isnan(until_s)
        except (TypeError, OverflowError):  # of what is no number, an array of several, a number beyond floats
            possible = False
        if not possible:
            raise ArgumentError(f"probe until {until_s!r} s on rank {self.rank}: needs a time, which may be inf")

    def check_note(self, note: str) -> bytes:
        """The bytes of a note; raises ArgumentError if it is no text, or too long."""
        if not isinstance(note, str):
            raise ArgumentError(f"a note {note!r:.60} on rank {self.rank}: needs a text, such as repr(3)")
        data = note.encode(errors="surrogateescape")  # it may be a file's name, which need not be text
        if len(data) > NOTE_BYTES:
            raise ArgumentError(f"a note of {len(data)} bytes on rank {self.rank}; at most {NOTE_BYTES}")
        return data

    def check_split(self, color: object, key: object) -> None:
        """Raise ArgumentError unless color (where it is not None) and key are whole numbers of at most 64 bits."""
        for name, value in {"color": 0 if color is None else color, "key": key}.items():
            if not isinstance(value, (int, np.integer)):
                raise ArgumentError(f"{name} {value!r} on rank {self.rank}: needs a whole number")
            if not -(1 << 63) <= value < 1 << 63:
                raise ArgumentError(f"{name} {value} on rank {self.rank}: needs a number of at most 64 bits")

    def check_new(self, what: str, shape: int | tuple[int, ...], dtype: Any) -> None:
        """Raise ArgumentError if arrays of this shape and dtype cannot be shared."""
        try:
            made = phantom(shape, dtype)
        except (ArrayError, TypeError) as error:  # which NumPy raises for what is no dtype
            raise ArgumentError(f"{what} on rank {self.rank}: {error}") from None
        if made.nbytes > _MOST_BYTES:
            raise ArgumentError(f"{what} on rank {self.rank}: {made.nbytes:.3g} bytes; needs at most {_MOST_BYTES:.3g}")
        self.check_shared(what, made.dtype)

    def check_shared(self, what: str, dtype: Any) -> None:
        """Raise ArgumentError if a dtype holds objects, whose addresses mean nothing, or harm, in another process."""
        if dtype.hasobject:
            raise ArgumentError(f"{what} of dtype {dtype} on rank {self.rank}: objects cannot be shared")

    def check_stream(self, name: object) -> None:
        """Raise ArgumentError unless a second stream can have this name: in the record it tells the two apart."""
        if not isinstance(name, str) or name in ("", "main"):
            raise ArgumentError(f"a stream named {name!r} on rank {self.rank}: needs a name other than 'main'")

    def check_caller(self, what: str, stream: str) -> None:
        """Raise ArgumentError if a second stream runs and this communicator is of another one.

        Its messages would come from two streams at a time, in an order that differs from rank to rank. The main stream
        may split the communicators of others before they start.
        """
        if stream not in ("main", self.stream_name):
            raise ArgumentError(
                f"{what} on stream {stream!r} of rank {self.rank} with a communicator of stream {self.stream_name!r}; "
                f"needs the stream's own, as in start(all_reduce, x, side.comm)"
            )

    def check_span(self, name: str) -> None:
        """Raise ArgumentError if a block or work has the name of a message, and would be counted as one."""
        if name in MESSAGES:
            raise ArgumentError(f"a span named {name!r} on rank {self.rank}: so are messages; needs another name")

    def check_one_node(self) -> None:
        """Raise ArgumentError if the ranks are on several nodes."""
        nodes = self.nodes.num_nodes
        if nodes > 1:
            raise ArgumentError(f"the {self.size} ranks of {self.context!r} are on {nodes} nodes, not on one")

    def check_work(self, seconds: float | None, flops: float = 0, bytes: float = 0, name: str = "compute") -> None:
        """Raise ArgumentError unless seconds (or, if None, flops and bytes) are finite numbers of at least 0, and the
        name is one of `check_span`.
        """
        self.check_span(name)
        try:
            possible = flops >= 0 and isfinite(flops) and bytes >= 0 and isfinite(bytes)
            possible = possible and (seconds is None or (seconds >= 0 and isfinite(seconds)))
        except (TypeError, ValueError, OverflowError):  # of what is no number, an array, a number beyond floats
            possible = False
        if not possible:
            what = f"{flops!r} operations on {bytes!r} bytes" if seconds is None else f"{seconds!r} seconds"
            raise ArgumentError(f"rank {self.rank} cannot compute for {what}: needs 0 or more, and finite")
