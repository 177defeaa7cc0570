"""Group: some ranks of a cluster, and the time of their collectives, without running them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

from simdist.cluster import Cluster, Link
from simdist.collectives import Case
from simdist.collectives.cost import case_of, links_of
from simdist.collectives.registry import choose, version
from simdist.comm.placement import Placement

__all__ = ["Group", "members", "misfit"]


@dataclass(frozen=True)
class Group:
    """Ranks of a cluster that work together, concurrently with similar groups.

    Args:
        cluster: the machine.
        ranks: in order.
        at_once: the number of such groups that send from the same node to others, and so share its network cards.
    """

    cluster: Cluster
    ranks: tuple[int, ...]
    at_once: int = 1
    _known: dict[tuple[str, int, int], float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def slowest(cls, cluster: Cluster, own: Sequence[int], starts: Iterable[int]) -> "Group":
        """The slowest of concurrent groups: one on the most nodes, if possible with unequal numbers of ranks on them.

        Args:
            own: the ranks of each group, counted from its start.
            starts: the first rank of each group.
        """
        crossing = Counter[int]()
        found: dict[tuple[int, ...], Group] = {}  # by the node of each rank, counted from the first
        for start in starts:
            ranks = tuple(start + rank for rank in own)
            nodes = [cluster.node_of(rank) for rank in ranks]
            every, first = set(nodes), min(nodes)
            crossing.update(every if len(every) > 1 else ())
            found.setdefault(tuple(node - first for node in nodes), cls(cluster, ranks))
        group = max(found.values(), key=lambda group: (group.nodes.num_nodes, not group.nodes.equal))
        return replace(group, at_once=max([1, *(crossing[node] for node in group.nodes)]))

    @cached_property
    def nodes(self) -> Placement:
        """The node of each."""
        return Placement(map(self.cluster.node_of, self.ranks))

    @cached_property
    def link(self) -> Link:
        """The slowest link between them, if one rank of each node sends to the next node, as in a ring."""
        return self.cluster.link_between(self.at_once) if self.nodes.num_nodes > 1 else self.cluster.inside

    def case(self, num_bytes: int) -> Case:
        """A collective of theirs on an array of this size."""
        return case_of(self.nodes, num_bytes, self.cluster.one_memory)

    def seconds(self, operation: str, num_bytes: int) -> float:
        """The time of a collective, by the formula of the algorithm that `auto` chooses; found once for each size.

        Args:
            num_bytes: the size of the whole array.
        """
        if len(self.ranks) == 1:
            return 0.0
        key = operation, version(operation), num_bytes
        if key not in self._known:
            formula = choose(operation, self, num_bytes).shared.formula(self.case(num_bytes))
            self._known[key] = formula.over_links(links_of(self.cluster, self.nodes.num_nodes > 1, self.at_once))
        return self._known[key]


def members(sizes: Mapping[str, int], *axes: str) -> tuple[int, ...]:
    """The ranks of a mesh that differ from rank 0 in these axes alone, in order: see `Mesh`.

    sizes dp 2, tp 4        members(sizes, "dp") = 0, 4        members(sizes, "tp") = 0, 1, 2, 3

    Args:
        sizes: by axis, from the outermost to the innermost.
    """
    strides, stride = dict[str, int](), 1
    for axis in reversed([*sizes]):
        strides[axis] = stride
        stride *= sizes[axis]
    steps = [range(0, sizes[axis] * strides[axis], strides[axis]) for axis in sizes if axis in axes]
    return tuple(map(sum, product(*steps)))


def misfit(inside: int, ranks: int, cluster: Cluster) -> str:
    """Why groups of so many ranks that share layers are not predicted: the first would stand for all, but some are on
    more nodes than others. Empty if they divide a node evenly, or fill several.
    """
    most = cluster.devices_per_node
    if ranks <= most or most % inside == 0 or inside % most == 0:
        return ""
    return f"{inside} ranks that share layers do not fill nodes of {most} devices evenly"
