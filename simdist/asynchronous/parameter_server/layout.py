"""Layout: which ranks are servers, which are workers, and which server holds which keys."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from simdist.arrays import Partition, partition
from simdist.comm import Communicator
from simdist.errors import ArgumentError, require_whole
from simdist.words import counted

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """The flat vector of weights, split over the first ranks, the servers; the other ranks are workers.

    A key is an index into the flat vector. Each server holds a contiguous range of whole rows; the numbers of
    rows differ by at most one:

        rank        0            1            2      3      4
        keys     |--- 0 … ---|--- … n-1 ---|  worker worker worker
                                              0      1      2

    Args:
        ranks: the number of servers and workers together.
        num_servers: at least 1, and less than ranks.
        num_keys: the length of the flat vector.
        row_width: the length of a row, which is never split, such as of an embedding table; it divides num_keys.

    Raises:
        ArgumentError: a number is out of range.
    """

    ranks: int
    num_servers: int
    num_keys: int
    row_width: int = 1

    def __post_init__(self) -> None:
        for each in fields(self):
            require_whole(each.name, getattr(self, each.name), 0)
        if not 1 <= self.num_servers < self.ranks:
            have = f"{counted(self.num_servers, 'server')} on {counted(self.ranks, 'rank')}"
            raise ArgumentError(f"{have}; needs at least 1 server and 1 worker")
        if self.row_width < 1 or self.num_keys % self.row_width:
            raise ArgumentError(f"{self.num_keys} keys in rows of {self.row_width}; needs a whole number of rows")

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return self.ranks - self.num_servers

    @property
    def rows(self) -> Partition:
        """The rows of each server."""
        return partition(self.num_keys // self.row_width, self.num_servers)

    def keys(self, server: int) -> slice:
        """The keys that a server holds."""
        rows = self.rows[server]
        return slice(rows.start * self.row_width, rows.stop * self.row_width)

    def serves(self, comm: Communicator) -> bool:
        """Whether this rank is a server."""
        return comm.rank < self.num_servers

    def worker(self, rank: int) -> int:
        """The index of a rank among the workers, from 0."""
        return rank - self.num_servers

    def rank_of(self, worker: int) -> int:
        """The rank of a worker."""
        return self.num_servers + worker

    def parts(self, keys: slice) -> Iterator[tuple[int, slice]]:
        """Each server, and its part of these keys, which may be empty."""
        for server in range(self.num_servers):
            held = self.keys(server)
            start = min(max(keys.start, held.start), held.stop)
            yield server, slice(start, max(start, min(keys.stop, held.stop)))

    def check(self, keys: slice) -> None:
        """Raise ArgumentError unless these keys exist."""
        if not 0 <= keys.start <= keys.stop <= self.num_keys or keys.step is not None:
            raise ArgumentError(f"keys {keys.start} to {keys.stop}; there are 0 to {self.num_keys}")
