"""Cost: what a collective moves, counted, and what its paper says it takes."""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from simdist.arrays import Partition, partition
from simdist.cluster import Cluster, Link
from simdist.errors import ArgumentError

__all__ = ["Case", "Cost", "Formula", "in_turn"]


class Cost(NamedTuple):
    """What one rank does in a collective, exactly: the record of a run shows these counts.

    Attributes:
        steps: rounds of messages, or meetings, from the first rank's first send to the last rank's last receive,
            when every round takes equally long.
        messages: how many messages this rank sends, empty ones included.
        sent_bytes: how many bytes this rank sends.
        reduced_bytes: how many bytes this rank folds into others (bytes of one operand).
        read_bytes, written_bytes: how much it reads from memory that ranks of the node have in common, and writes to
            it, where they need no messages.
    """

    steps: int
    messages: int
    sent_bytes: int
    reduced_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class Formula(NamedTuple):
    """The published running time of an algorithm: latencies * alpha + bytes * beta + reduced_bytes * gamma.

    gamma is the time to fold a byte: two bytes are read for it and one written. So a byte that is read or written in
    memory that ranks share, without a message, counts as a third of one reduced.

    It follows the slowest rank and takes chunks as equal, so it may differ from any one rank's Cost.
    """

    latencies: float
    bytes: float
    reduced_bytes: float = 0.0

    def seconds(self, link: Link, reduced_bytes_per_s: float) -> float:
        """The time with alpha and beta of this link and gamma = 1 / reduced_bytes_per_s."""
        return (
            self.latencies * link.latency_s + self.bytes / link.bytes_per_s + self.reduced_bytes / reduced_bytes_per_s
        )

    def on(self, cluster: Cluster, ranks: int) -> float:
        """The time in seconds on `ranks` ranks of this cluster, all messages over the slowest link crossed."""
        return self.seconds(cluster.link(ranks), cluster.device.reduced_bytes_per_s)


Counts = TypeVar("Counts", Cost, Formula)


def in_turn(*parts: Counts) -> Counts:
    """The cost, or the formula, of several collectives one after the other."""
    return type(parts[0])(*(sum(counts) for counts in zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True)
class Case:
    """One call of a collective, as far as its cost depends on it.

    Args:
        ranks: how many take part, p.
        num_bytes: of the whole array, n: what is reduced or broadcast; for all_gather, reduce_scatter,
            scatter and gather the array of all chunks together; for all_to_all what each rank puts in.
        rank: whose cost is asked for.
        root: of a rooted collective.
        itemsize: bytes an element; chunks hold whole elements.
        ranks_per_node: how many ranks share a node; 0 for all of them.
        one_memory: whether those of a node share one memory: what is read or written in a peer's crosses the link
            where they do not.
    """

    ranks: int
    num_bytes: int
    rank: int = 0
    root: int = 0
    itemsize: int = 1
    ranks_per_node: int = 0
    one_memory: bool = True

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise ArgumentError(f"ranks is {self.ranks}; needs at least 1")
        for name in ("rank", "root"):
            if not 0 <= getattr(self, name) < self.ranks:
                raise ArgumentError(f"{name} {getattr(self, name)} is not one of ranks 0 to {self.ranks - 1}")
        if self.itemsize < 1 or self.num_bytes < 0 or self.num_bytes % self.itemsize:
            raise ArgumentError(f"{self.num_bytes} bytes are no whole number of items of {self.itemsize} bytes")
        if self.ranks_per_node < 0:
            raise ArgumentError(f"ranks_per_node is {self.ranks_per_node}; needs at least 0")

    @property
    def chunks(self) -> Partition:
        """How the array's elements are cut, one chunk a rank."""
        return partition(self.num_bytes // self.itemsize, self.ranks)

    def chunk_bytes(self, i: int) -> int:
        """The bytes of chunk i, counted round the ring of ranks: i may be any integer."""
        return self.chunks.size(i % self.ranks) * self.itemsize
