"""What direct collectives read and write, counted."""

from typing import NamedTuple

from simdist.collectives.cost import Case, Cost, Formula

__all__ = ["Moves", "fits_one_shot", "is_short", "on_one_node"]

_SHORT_BYTES = 1 << 12  # of one array, and four times as much of all ranks' together
_ONE_SHOT_BYTES = 1 << 14  # likewise


class Moves(NamedTuple):
    """What one rank does on one node.

    Attributes:
        meetings: to which all ranks come.
        read_bytes, written_bytes: in memory that the ranks have in common.
        private_bytes: read from and written to memory of its own.
        reduced_bytes: of one operand.
    """

    meetings: int
    read_bytes: int
    written_bytes: int
    private_bytes: int
    reduced_bytes: int = 0

    def cost(self, case: Case) -> Cost:
        """As a Cost; a single rank has nothing to do."""
        if case.ranks == 1:
            return Cost(0, 0, 0)
        return Cost(self.meetings, 0, 0, self.reduced_bytes, self.read_bytes, self.written_bytes)

    def formula(self, case: Case) -> Formula:
        """As a Formula, where the ranks share one memory."""
        if case.ranks == 1:
            return Formula(0, 0)
        return Formula(self.meetings, 0, (self.read_bytes + self.written_bytes + self.private_bytes) / 3)


def is_short(num_bytes: int, ranks: int) -> bool:
    """Whether an array of so many bytes is copied at once, wherever it lies: quicker than to ask, and to meet again."""
    return num_bytes <= _SHORT_BYTES and num_bytes * ranks <= 4 * _SHORT_BYTES


def fits_one_shot(num_bytes: int, ranks: int) -> bool:
    """Whether an array that is to be copied anyhow is reduced in one shot: each rank reads what all have copied."""
    return num_bytes <= _ONE_SHOT_BYTES and num_bytes * ranks <= 4 * _ONE_SHOT_BYTES


def on_one_node(case: Case) -> bool:
    """Whether all ranks of this case share a node."""
    return not 0 < case.ranks_per_node < case.ranks
