"""Sharing: which ranks together hold one model, and which hold the same shard."""

from typing import NamedTuple, cast

from simdist.arrays import Array
from simdist.collectives import all_gather, all_reduce, reduce_scatter
from simdist.comm import Communicator
from simdist.errors import ArgumentError, require_whole

__all__ = ["Sharing", "check_shards"]


class Sharing(NamedTuple):
    """Each run of `shards` neighbours holds a model, a shard each; ranks `shards` apart hold the same shard.

        2 shards on 6 ranks     0   1  |  2   3  |  4   5        rank 3: holders 2, 3
                                |   |     |   |     |   |                copies 1, 3, 5
        shard                   0   1     0   1     0   1

    Gathers and reductions of the whole model stay among neighbours, in one node if they fit there; only the sums of
    shards, once a step, pass between nodes.

    Attributes:
        holders: the ranks that together hold one whole model (FSDP's shard group, MiCS's partition group).
        copies: the ranks that hold the same shard (their replication group); None if there is only one model.
        algorithm: of the collectives.
    """

    holders: Communicator
    copies: Communicator | None = None
    algorithm: str = "auto"

    @classmethod
    def of(cls, comm: Communicator, shards: int = 0, algorithm: str = "auto") -> "Sharing":
        """These ranks, with this number of shards of each model; 0 for one shard per rank. All must call.

        Raises:
            ArgumentError: the number of ranks is not a multiple of shards.
        """
        check_shards(comm.size, shards)
        if shards in (0, comm.size):
            return cls(comm, None, algorithm)
        group, place = divmod(comm.rank, shards)
        holders = cast(Communicator, comm.split(group, comm.rank))
        return cls(holders, cast(Communicator, comm.split(place, comm.rank)), algorithm)

    def reduce_scatter(self, x: Array) -> Array:
        """This rank's chunk of the sum of x over the holders: n bytes on p of them, n(p-1)/p sent by each."""
        return reduce_scatter(x, self.holders, algorithm=self.algorithm)

    def all_gather(self, chunk: Array, out: Array) -> None:
        """The chunks of all holders, in `out`, of n bytes: n(p-1)/p sent by each."""
        all_gather(chunk, self.holders, self.algorithm, out=out)

    def add_up(self, shard: Array) -> None:
        """Replace this rank's shard, or a part of it, by its sum over the copies.

        Cost per rank: an all-reduce of n bytes on c copies, by the ring 2n(c-1)/c bytes.
        """
        if self.copies is not None:
            all_reduce(shard, self.copies, algorithm=self.algorithm)


def check_shards(dp: int, shards: int) -> None:
    """Raise ArgumentError if dp ranks cannot hold models of this number of shards."""
    require_whole("shards", shards, 0)
    if shards and dp % shards:
        raise ArgumentError(f"shards is {shards}, and dp {dp}; needs a divisor of that, or 0 for as many")
