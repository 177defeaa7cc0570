"""Group: the members of a real communicator, and the collective MPI calls that they make."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from simdist.comm.bindings import MPI
from simdist.comm.checks import NOTE_BYTES, cut, mismatch
from simdist.comm.open_requests import unreceived
from simdist.comm.placement import Placement

__all__ = ["MpiGroup", "digest"]

_PROBES = 3


class MpiGroup:
    """Some ranks of the job. Every member must make each of these calls, in the same order.

    Args:
        mpi: an MPI communicator with no other user.
        context: the group's name.
        ranks, nodes: the global rank and the node of each member.

    Attributes:
        ends: functions that free what was made from this group; all members made it, in this order.
        memory_ends: the same for shared memory, whose turn comes last: until then others of them may refer to it.
    """

    def __init__(self, mpi: Any, context: str, ranks: Sequence[int], nodes: Placement) -> None:
        self.mpi = mpi
        self.context = context
        self.ranks = tuple(ranks)
        self.nodes = nodes
        self.rank: int = mpi.Get_rank()
        self.size: int = mpi.Get_size()
        self.ends: list[Callable[[], object]] = []
        self.memory_ends: list[Callable[[], object]] = []
        self._siblings = self.ends
        self._splits = 0
        self._twins: dict[str, int] = {}  # how many, by name
        self._heard = bytearray(16)
        self._hear = [self._heard, 2, MPI.INT64_T]

    # -- agreeing ---------------------------------------------------------------------------------------

    def agree(self, what: str) -> None:
        """Return if all members say the same.

        They compare hashes h of `what`: the bitwise AND of all h and that of all ~h are complements of each other if
        and only if all h are equal. The texts are exchanged only if they are not.

        Cost: one all-reduce of 16 bytes.

        Raises:
            CollectiveMismatch: on all members.
        """
        said = _fingerprint(what)
        self.mpi.Allreduce((said, 2, MPI.INT64_T), self._hear, MPI.BAND)
        if self._heard != said:
            raise mismatch(self.context, self.notes(cut(what).encode()))

    def notes(self, data: bytes) -> list[str]:
        """Every member's text, each of at most NOTE_BYTES bytes."""
        ended = data + b"."  # so that zeros at the end of a text are not taken for what follows it
        mine = np.zeros(NOTE_BYTES + 1, np.uint8)
        mine[: len(ended)] = np.frombuffer(ended, np.uint8)
        every = np.empty((self.size, len(mine)), np.uint8)
        self.mpi.Allgather(mine, every)
        return [row.tobytes().rstrip(b"\0")[:-1].decode(errors="surrogateescape") for row in every]

    def unreceived(self) -> list[str]:
        """The messages that no receive has taken, in words: of each source the first."""
        status, found = MPI.Status(), list[str]()
        if self.mpi == MPI.COMM_NULL:
            return found
        # MPICH may look before it progresses, and so find at the second probe only what a rank sent to itself.
        if any(self.mpi.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG) for _ in range(_PROBES)):
            for src in range(self.size):
                if self.mpi.Iprobe(src, MPI.ANY_TAG, status):
                    num_bytes, tag = status.Get_count(MPI.BYTE), status.Get_tag()
                    found.append(unreceived(self.ranks[src], self.ranks[self.rank], num_bytes, tag, self.context))
        return found

    # -- groups -------------------------------------------------------------------------------------------

    def twin(self, name: str) -> "MpiGroup":
        """The same members under another name, numbered if used before; its messages match only each other."""
        number = self._twins[name] = self._twins.get(name, 0) + 1
        name += f" {number}" if number > 1 else ""
        return self._kin(self.mpi.Dup(), self.context + name, range(self.size))

    def split(self, color: int | None, key: int) -> "MpiGroup | None":
        """The members that gave the same color, ordered by key, then rank; None where color is None."""
        every = np.empty((self.size, 3), np.int64)
        self.mpi.Allgather(np.array([color is not None, color or 0, key], np.int64), every)
        self._splits += 1
        if color is None:
            self.mpi.Split(MPI.UNDEFINED, 0)
            return None
        alike = [(k, r) for r, (colored, c, k) in enumerate(every.tolist()) if colored and c == color]
        members = [r for _, r in sorted(alike)]
        # MPI needs nonnegative colors: the first member is the color, and the index among the members the key.
        mpi = self.mpi.Split(members[0], members.index(self.rank))
        return self._kin(mpi, f"{self.context}/{self._splits}:{int(color)}", members)

    def shrunk(self) -> "MpiGroup | None":
        """The living members, in the same order; None if all live. Blocks until all of them have called."""
        mpi = self.mpi.Shrink()
        if mpi.Get_size() == self.size:
            mpi.Free()
            return None
        self._splits += 1
        return self._kin(mpi, f"{self.context}/{self._splits}:alive", self.members(mpi.Get_group()))

    def members(self, group: Any) -> list[int]:
        """The members that are in an MPI group, in its order; frees it."""
        own = self.mpi.Get_group()
        members: list[int] = MPI.Group.Translate_ranks(group, None, own)
        own.Free()
        if group != MPI.GROUP_EMPTY:
            group.Free()
        return members

    def _kin(self, mpi: Any, context: str, members: Sequence[int]) -> "MpiGroup":
        group = MpiGroup(mpi, context, [self.ranks[m] for m in members], self.nodes.part(members))
        group._siblings = self.ends
        self.ends.append(group.free)
        return group

    def free(self) -> None:
        """Free what was made from this group, the last first, and then the group itself, once."""
        for ends in (self.ends, self.memory_ends):
            while ends:
                ends.pop()()
        if self.free in self._siblings:
            self._siblings.remove(self.free)
        if self.mpi != MPI.COMM_NULL:
            self.mpi.Free()


def digest(what: str) -> int:
    """A 64-bit hash of the text."""
    data = what.encode(errors="backslashreplace")  # a file's name in it need not be text
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


@lru_cache(maxsize=1024)
def _fingerprint(what: str) -> bytes:
    """The digest of the text, and its complement."""
    h = digest(what)
    return h.to_bytes(8, "little") + (~h % (1 << 64)).to_bytes(8, "little")
