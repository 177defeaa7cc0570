"""Centralized data parallelism: a server rank gathers the gradients and sends the weights back."""

from collections.abc import Mapping, Sequence

from simdist.parallel.holding import Shard
from simdist.parallel.root import RootMethod

__all__ = ["Centralized"]


class Centralized(RootMethod):
    """Every rank works on its part of the batch; rank 0 is also the server of the others.

        rank         0                      1          2          3
        gradients    g0                   g1 -> 0
                     g01                             g2 -> 0
                     g012                                       g3 -> 0
                     g0123, update: w
        weights      w -> 1, w -> 2, w -> 3

    Only rank 0 keeps masters and the optimizer's state. It adds the gradients up in the order of ranks.

    Cost per step, n bytes of gradient and n of weights on p ranks: rank 0 receives p-1 messages of n bytes, adds
    them up, and sends p-1 of n; any other rank sends one and receives one. All of them pass through the link of
    rank 0, so with alpha seconds per message, beta per byte sent and gamma per byte added the time is

        centralized                   2 (p-1) (alpha + n beta) + (p-1) n gamma        grows with p
        reduce + broadcast (tree)     2 lg p (alpha + n beta) + lg p n gamma          with lg p
        all-reduce (ring)             2 (p-1) alpha + (p-1)/p (2 n beta + n gamma)    2 n beta for any p

    The tree is `DataParallel` with the algorithm "tree", and the ring is its "ring".

    Source: Li et al. 2014, OSDI '14, "Scaling Distributed Machine Learning with the Parameter Server", of which
    this is the synchronous case with one server; Patarasuk and Yuan 2009, J. Parallel Distrib. Comput. 69(2),
    117-124 (the ring).
    """

    _algorithm = "linear"

    def step(self, learning_rate: float) -> bool:
        """Reduce gradients to the server, update there, and broadcast the weights."""
        changed = self._reduce_and_update(learning_rate)
        if changed:
            self._send_weights()
        return changed

    def restore(self, vectors: Mapping[str, Sequence[Shard]], numbers: Mapping[str, float]) -> None:
        """Rank 0 resumes from these, and sends the others its weights."""
        super().restore(vectors, numbers)
        self._send_weights()
