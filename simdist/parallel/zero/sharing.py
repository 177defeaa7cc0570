"""Sharing: which ranks shard one model between them, and which hold the same shard."""

from typing import NamedTuple, cast

from simdist.arrays import Array
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.errors import ArgumentError

__all__ = ["Sharing", "check_shards"]


class Sharing(NamedTuple):
    """Neighbours hold a model between them, a shard each; ranks as far apart as that hold the same shard.

        2 shards on 6 ranks     0   1  |  2   3  |  4   5        rank 3: holders 2, 3
                                |   |     |   |     |   |                copies 1, 3, 5
        shard                   0   1     0   1     0   1

    So what all holders must have of each other stays with neighbours, in one node if it has room for them, and what
    passes between nodes is a shard for each.

    Attributes:
        holders: the ranks that have one whole model between them (FSDP's shard group, MiCS's partition group).
        copies: the ranks that have the same shard of it (their replication group); None where all are holders of one.
    """

    holders: Communicator
    copies: Communicator | None = None

    @classmethod
    def of(cls, comm: Communicator, shards: int = 0) -> "Sharing":
        """These ranks, with so many shards of each model; 0 for as many as there are ranks. All must call.

        Raises:
            ArgumentError: the ranks are no multiple of that.
        """
        check_shards(comm.size, shards)
        if shards in (0, comm.size):
            return cls(comm)
        group, place = divmod(comm.rank, shards)
        holders = cast(Communicator, comm.split(group, comm.rank))
        return cls(holders, cast(Communicator, comm.split(place, comm.rank)))

    def add_up(self, shard: Array, algorithm: str) -> None:
        """Replace this rank's shard, or a part of it, by its sum over the copies.

        Cost per rank: of n bytes on c copies an all-reduce, by the ring 2n(c-1)/c bytes.
        """
        if self.copies is not None:
            all_reduce(shard, self.copies, algorithm=algorithm)


def check_shards(dp: int, shards: int) -> None:
    """Raise ArgumentError if so many ranks cannot hold models of so many shards."""
    if shards < 0 or (shards and dp % shards):
        raise ArgumentError(f"shards is {shards}, and dp {dp}; needs a divisor of that, or 0 for as many")
