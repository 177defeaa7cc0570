"""Cost: exact counts of what a collective moves, and its running time by the papers."""

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from numbers import Real
from typing import NamedTuple

from simdist.arrays import Partition, partition
from simdist.cluster import Cluster, Link, find_cluster
from simdist.comm.placement import Placement
from simdist.errors import ArgumentError, as_declared, require_least

__all__ = ["Case", "Cost", "Formula", "Links", "case_of", "chunk_each_step", "links_of", "repeated"]


class Cost(NamedTuple):
    """What one rank does in a collective, exactly: the record of a run shows these counts.

    Attributes:
        steps: rounds of messages, or meetings, from the first rank's first send to the last rank's last receive,
            when every round takes equally long.
        messages: how many messages this rank sends, empty ones included.
        sent_bytes: how many bytes this rank sends.
        reduced_bytes: how many bytes this rank folds into others (bytes of one operand).
        read_bytes, written_bytes: how much it reads from and writes to memory shared by the ranks of the node, in
            algorithms without messages.
    """

    steps: int
    messages: int
    sent_bytes: int
    reduced_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def memory_bytes(self, copies: int = 1) -> int:
        """The bytes that this rank loads and stores on a node whose ranks share a memory.

            a message    1 copy: read at its source, written at its destination      2 copies: through a shared buffer
            x += y       x and y read, x written

        For algorithms without messages these are counted. Over all p ranks, a ring all-reduce of n bytes is 7n(p-1),
        with two copies a message 11n(p-1); `direct`, in place, is 2pn, the lower bound.

        Args:
            copies: of each message.
        """
        if self.read_bytes or self.written_bytes:
            return self.read_bytes + self.written_bytes
        return 2 * copies * self.sent_bytes + 3 * self.reduced_bytes


class Links(NamedTuple):
    """What a Formula has to know of a cluster.

    Attributes:
        link: the slowest that the ranks have to cross, or, between nodes, that of one network card.
        reduced_bytes_per_s: 1 / gamma.
        inside: the link of phases that stay inside nodes.
        cards: how many network cards the senders of a node share; infinity if each has its own.
        eager_bytes: up to what size messages do not wait for their receives.
    """

    link: Link
    reduced_bytes_per_s: float
    inside: Link
    cards: float = inf
    eager_bytes: float = 0


def case_of(nodes: Placement, num_bytes: int, one_memory: bool) -> "Case":
    """One call of a collective on ranks that are on these nodes."""
    return _case(len(nodes), num_bytes, nodes.most, one_memory, nodes.first_lacks, nodes.num_nodes)


@lru_cache(maxsize=4096)  # every rank asks for it; to check the numbers takes longer than all else that `auto` does
def _case(ranks: int, num_bytes: int, most: int, one_memory: bool, first_lacks: int, num_nodes: int) -> "Case":
    return Case(ranks, num_bytes, 0, 0, 1, most, one_memory, first_lacks, num_nodes)


def links_of(cluster: Cluster, several_nodes: bool, at_once: int = 1) -> Links:
    """The links of ranks that are on several nodes or on one.

    Args:
        at_once: how many such groups of ranks share the network cards of a node.
    """
    link, cards = (cluster.between, cluster.nics_per_node / at_once) if several_nodes else (cluster.inside, inf)
    return Links(link, cluster.device.reduced_bytes_per_s, cluster.inside, cards, cluster.eager_bytes)


class Formula(NamedTuple):
    """The published running time of an algorithm: latencies * alpha + bytes * beta + reduced_bytes * gamma.

        formula("all_reduce", "ring", ranks=64, num_bytes=1e8).at(alpha=5e-6, beta=1 / 25e9, gamma=1 / 200e9)    # s

    gamma is the time to fold a byte, which reads two bytes and writes one. So a byte read from or written to shared
    memory, without a message, counts as a third of a reduced byte.

    It follows the slowest rank and assumes equal chunks, so it may differ from any one rank's Cost. Where papers round
    for numbers of ranks that are not powers of two (recursive halving, Bruck's all-to-all), it is the exact count.
    """

    latencies: float
    bytes: float
    reduced_bytes: float = 0.0

    @property
    def senders(self) -> int:
        """How many ranks of a node send to other nodes at once, and may have to share its network cards; 0 if none."""
        return 1

    @property
    def between_bytes(self) -> float:
        """Of `bytes`, those of steps in which some rank sends to another node: what that link's beta counts for.

        Of hierarchical all-reduce on m nodes of k ranks 2n/k (m-1)/m; of ring, by the ranks at the edges of nodes, all.
        The formula has to be of several nodes, by ranks_per_node; in one of ranks on a single node all bytes count.
        """
        return self.seconds(Link(0.0, 1.0), inf, Link(0.0, inf))

    def seconds(self, link: Link, reduced_bytes_per_s: float, inside: Link | None = None) -> float:
        """The time with alpha and beta of this link, which no two ranks share, and gamma = 1 / reduced_bytes_per_s.

        Args:
            inside: the link of phases that stay inside nodes, if the algorithm has any: see `OverNodes`.
        """
        return self.over_links(Links(link, reduced_bytes_per_s, inside or link))

    def over_links(self, links: Links) -> float:
        """The time in seconds with these."""
        own = links.link.among(self.senders, links.cards) if self.senders else links.inside
        return self._at(own.latency_s, 1 / own.bytes_per_s, 1 / links.reduced_bytes_per_s)

    @as_declared
    def at(self, alpha: float, beta: float, gamma: float = 0.0) -> float:
        """The time in seconds with these, all phases over one link.

        Args:
            alpha, beta, gamma: seconds a message, seconds a byte sent and seconds a byte reduced.

        Raises:
            ArgumentError: one of them is no number of at least 0.
        """
        return self._at(alpha, beta, gamma)

    def _at(self, alpha: float, beta: float, gamma: float) -> float:
        return self.latencies * alpha + self.bytes * beta + self.reduced_bytes * gamma

    @as_declared
    def on(self, cluster: Cluster | str, ranks: int) -> float:
        """The time in seconds on `ranks` ranks of a cluster, or of the preset of this name, each phase over the slowest
        link that it crosses.

        Which phases stay inside nodes is known if the formula was asked for with ranks_per_node; otherwise all ranks
        are on one, and all phases of an algorithm take the slower link.
        """
        cluster = find_cluster(cluster)
        return self.over(cluster, ranks > cluster.devices_per_node)

    def over(self, cluster: Cluster, several_nodes: bool) -> float:
        """The same, for ranks that are on several nodes or on one."""
        return self.over_links(links_of(cluster, several_nodes))


def repeated(times: int, each: Formula) -> Formula:
    """The Formula of this many equal steps."""
    return Formula(*(times * count for count in each))


def chunk_each_step(case: "Case", reduces: bool = False) -> Formula:
    """The Formula of p-1 steps in each of which a rank passes on one chunk of p, and folds one if it `reduces`."""
    bytes = case.num_bytes * (case.ranks - 1) / case.ranks
    return Formula(case.ranks - 1, bytes, bytes if reduces else 0)


@dataclass(frozen=True, slots=True)
class Case:
    """One call of a collective, as far as its cost depends on it.

    Args:
        ranks: how many take part, p.
        num_bytes: of the whole array, n: what is reduced or broadcast; for all_gather, reduce_scatter,
            scatter and gather the array of all chunks together; for all_to_all what each rank puts in.
        rank: the rank that the cost is for.
        root: of a rooted collective.
        itemsize: bytes per item; chunks hold whole items.
        ranks_per_node: how many ranks share a node; 0 for all of them.
        one_memory: whether the ranks of a node share one memory. If not, what they read and write in a peer's memory
            crosses the link.
        first_lacks: how many ranks fewer than a full node the first node has.
        num_nodes: how many nodes there are; 0 for as few as hold the ranks: of the others only the last may lack some.
    """

    ranks: int
    num_bytes: int
    rank: int = 0
    root: int = 0
    itemsize: int = 1
    ranks_per_node: int = 0
    one_memory: bool = True
    first_lacks: int = 0
    num_nodes: int = 0

    def __post_init__(self) -> None:
        for name in ("ranks", "num_bytes", "rank", "root", "itemsize", "ranks_per_node", "first_lacks", "num_nodes"):
            value = getattr(self, name)
            if type(value) is not int:  # 1e8, as people write it
                is_number = isinstance(value, Real)
                if not is_number or value % 1:
                    raise ArgumentError(f"{name} is {value!r}; needs a whole number")
                object.__setattr__(self, name, int(value))
            if getattr(self, name) >= 1 << 63:
                raise ArgumentError(f"{name} is {value}; needs less than 2**63")
        require_least("ranks", self.ranks, 1)
        for name in ("rank", "root"):
            if not 0 <= getattr(self, name) < self.ranks:
                raise ArgumentError(f"{name} {getattr(self, name)} is not one of ranks 0 to {self.ranks - 1}")
        if self.itemsize < 1 or self.num_bytes < 0 or self.num_bytes % self.itemsize:
            raise ArgumentError(f"{self.num_bytes} bytes are no whole number of items of {self.itemsize} bytes")
        require_least("ranks_per_node", self.ranks_per_node, 0)
        require_least("first_lacks", self.first_lacks, 0)
        fewest = -(-(self.ranks + self.first_lacks) // self.per_node)
        object.__setattr__(self, "num_nodes", self.num_nodes or fewest)
        require_least("num_nodes", self.num_nodes, fewest)

    @property
    def per_node(self) -> int:
        """How many ranks a full node has."""
        return min(self.ranks_per_node or self.ranks, self.ranks)

    @property
    def on_one_node(self) -> bool:
        """Whether all ranks share a node."""
        return self.per_node == self.ranks

    @property
    def equal_nodes(self) -> bool:
        """Whether every node has the same number of ranks."""
        return self.ranks == self.num_nodes * self.per_node

    @property
    def num_items(self) -> int:
        """How many items the array has."""
        return self.num_bytes // self.itemsize

    @property
    def chunks(self) -> Partition:
        """How the array's items are cut, one chunk per rank."""
        return partition(self.num_items, self.ranks)

    def chunk_bytes(self, i: int) -> int:
        """The bytes of chunk i, counted round the ring of ranks: i may be any integer."""
        return self.chunks.size(i % self.ranks) * self.itemsize
