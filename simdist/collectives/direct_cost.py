"""What direct collectives read and write, counted."""

from typing import NamedTuple

from simdist.collectives.cost import Case, Cost, Formula
from simdist.comm.peers import ROOM_BYTES

__all__ = ["Moves", "fits_one_shot", "is_short", "rooms"]

_SHORT = {  # by `Peers.memory_of`: the most bytes of one array, and of all ranks' arrays together
    "host": (1 << 12, 1 << 14),
    "devices": (1 << 20, 1 << 21),  # about vLLM's, csrc/custom_all_reduce.cuh: 512 KiB on 4 ranks, 256 KiB on 8
    "device": (0, 0),  # ranks take turns there; one that folds for all takes the fewest
}
_ONE_SHOT = {  # the same, where the copies are left anyway: reading more then costs less than another meeting
    "host": (1 << 19, 1 << 20),  # measured on 2 to 8 ranks on two cores
    "devices": _SHORT["devices"],
    "device": (1 << 16, 1 << 18),
}


class Moves(NamedTuple):
    """What one rank does on one node.

    Attributes:
        meetings: of all ranks.
        read_bytes, written_bytes: in shared memory.
        private_bytes: read from and written to private memory.
        reduced_bytes: of one operand.
        peer_bytes: how much of what is read and written belongs to other ranks.
        contention_bytes: what other ranks move over the same link at that time: see `Peers.moved`.
    """

    meetings: int
    read_bytes: int
    written_bytes: int
    private_bytes: int
    reduced_bytes: int = 0
    peer_bytes: int = 0
    contention_bytes: int = 0

    def cost(self, case: Case) -> Cost:
        """As a Cost; a single rank has nothing to do."""
        if case.ranks == 1:
            return Cost(0, 0, 0)
        return Cost(self.meetings, 0, 0, self.reduced_bytes, self.read_bytes, self.written_bytes)

    def formula(self, case: Case) -> Formula:
        """As a Formula."""
        if case.ranks == 1:
            return Formula(0, 0)
        num_bytes = self.read_bytes + self.written_bytes + self.private_bytes
        if case.one_memory:
            return Formula(self.meetings, 0, num_bytes / 3)
        return Formula(self.meetings, self.peer_bytes + self.contention_bytes, (num_bytes - self.peer_bytes) / 3)


def rooms(items: int, itemsize: int, chunks: int = 1) -> int:
    """How many rooms it takes to post this many chunks, the largest of `items` items."""
    return max(1, -(-items // max(1, ROOM_BYTES // (chunks * itemsize))))


def is_short(num_bytes: int, ranks: int, memory: str = "host") -> bool:
    """Whether an array is so short that it is copied, wherever it is: to find out would take one more meeting."""
    most, together = _SHORT[memory]
    return num_bytes <= most and num_bytes * ranks <= together


def fits_one_shot(num_bytes: int, ranks: int, memory: str = "host") -> bool:
    """Whether a staged array is reduced in one shot: each rank reads the copies of all."""
    most, together = _ONE_SHOT[memory]
    return num_bytes <= most and num_bytes * ranks <= together
