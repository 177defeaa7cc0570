"""Placement: the node of each rank of a group, and what follows from it."""

from collections.abc import Sequence
from functools import cached_property

__all__ = ["Placement"]


class Placement(tuple[int, ...]):
    """The node of each rank of a group.

    Its properties are computed once: the virtual members of a group share one placement.
    """

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """The ranks of each node; both nodes and ranks are in ascending order."""
        members: dict[int, list[int]] = {node: [] for node in sorted(set(self))}
        for rank, node in enumerate(self):
            members[node].append(rank)
        return members

    @cached_property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self.members)

    @cached_property
    def most(self) -> int:
        """The largest number of ranks on a node."""
        return max(map(len, self.members.values()))

    @cached_property
    def first_lacks(self) -> int:
        """How many ranks fewer than the fullest node that of rank 0 has."""
        return self.most - len(self.members[self[0]])

    @cached_property
    def equal(self) -> bool:
        """Whether every node has the same number of ranks."""
        return len(set(map(len, self.members.values()))) <= 1

    @cached_property
    def in_turn(self) -> bool:
        """Whether the ranks of each node are consecutive."""
        return all(ranks[-1] - ranks[0] == len(ranks) - 1 for ranks in self.members.values())

    @cached_property
    def filled(self) -> bool:
        """Whether the ranks fill one node after the other, so that only the last may have fewer, as costs assume."""
        firsts = [ranks[0] for ranks in self.members.values()]
        return firsts == list(range(0, len(self), self.most))

    def neighbours(self, rank: int) -> list[int]:
        """The ranks on the same node as this one, itself included."""
        return self.members[self[rank]]

    def part(self, members: Sequence[int]) -> "Placement":
        """The placement of some of the ranks, in this order."""
        return Placement(self[rank] for rank in members)
