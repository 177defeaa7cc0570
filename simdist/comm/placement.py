"""Placement: which node each rank of a group lives on, and what follows from it."""

from collections.abc import Sequence
from functools import cached_property

__all__ = ["Placement"]


class Placement(tuple[int, ...]):
    """The node of each rank of a group.

    What many ranks ask for is worked out once: the virtual members of a group share one placement.
    """

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """The ranks of each node, in order; the nodes in order, too."""
        members: dict[int, list[int]] = {node: [] for node in sorted(set(self))}
        for rank, node in enumerate(self):
            members[node].append(rank)
        return members

    @cached_property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.members)

    @cached_property
    def most(self) -> int:
        """How many ranks the fullest node has."""
        return max(map(len, self.members.values()))

    @cached_property
    def equal(self) -> bool:
        """Whether every node has the same number of ranks."""
        return len(set(map(len, self.members.values()))) <= 1

    @cached_property
    def in_turn(self) -> bool:
        """Whether the ranks of each node follow each other without a gap."""
        return all(ranks[-1] - ranks[0] == len(ranks) - 1 for ranks in self.members.values())

    def neighbours(self, rank: int) -> list[int]:
        """The ranks on the node of this one, itself among them."""
        return self.members[self[rank]]

    def part(self, members: Sequence[int]) -> "Placement":
        """The placement of some of the ranks, in this order."""
        return Placement(self[rank] for rank in members)
