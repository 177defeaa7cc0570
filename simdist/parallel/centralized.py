"""Centralized data parallelism: one rank that updates the weights of all, as a server, or as the reducer of a job."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from simdist.arrays import Array, clear
from simdist.collectives import broadcast, reduce
from simdist.comm import Communicator
from simdist.nn import Model, Noise
from simdist.parallel.data_parallel import ReplicaMethod
from simdist.parallel.holding import Holding, Shard
from simdist.parallel.method import GRADIENTS
from simdist.parallel.recipe import Recipe
from simdist.parallel.update import Update

__all__ = ["Centralized", "MapReduce", "RootMethod"]


class RootMethod(ReplicaMethod):
    """A method whose rank 0 alone has masters and optimizer state; the others copy its weights.

        rank 0     gradient 0 --+--> sum --> update --> weights --+--> weights
        rank 1     gradient 1 --+                                 +--> the same
        rank 2     gradient 2 --+                                 +--> the same
                        `_reduce_and_update`             `_send_weights`

    Args:
        model, comm, recipe, seed: as of `ReplicaMethod`.

    Attributes:
        update: of all weights on rank 0, and of none elsewhere, where no norm of their gradient is known either.
    """

    _algorithm: ClassVar[str]  # of the reduction to rank 0, and of the broadcast from it

    def __init__(self, model: Model, comm: Communicator, recipe: Recipe, seed: int) -> None:
        super().__init__(model, comm, recipe, seed)
        self._own = own = slice(0, len(self.weights) if comm.rank == 0 else 0)
        recipe = recipe if comm.rank == 0 else replace(recipe, max_norm=None)
        self.update = Update(self.weights[own], Holding([own]), model.parameters, recipe, self.spread)

    def _reduce_and_update(self, learning_rate: float) -> bool:
        """Sum the gradients on rank 0, update its weights by the sum, and clear all; whether the weights changed."""
        with self.comm.span(GRADIENTS, self.gradient.nbytes):
            reduce(self.gradient, self.comm, 0, algorithm=self._algorithm)
        with self.comm.span("update"):
            changed = self.update.step(self.gradient[self._own], learning_rate)
            clear(self.gradient)
        return changed

    def _send_weights(self) -> None:
        """Broadcast the weights of rank 0."""
        with self.comm.span("weights from root", self.weights.nbytes):
            broadcast(self.weights, self.comm, 0, self._algorithm)


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


class MapReduce(RootMethod):
    """Each step is a separate job: mappers get the weights, and their gradients are reduced to one sum.

                 broadcast            map                         reduce
        rank 0   weights ----+--> gradient of part 0 ---+--> sum, update: the next job's weights
        rank 1               +--> gradient of part 1 ---+
        rank 2               +--> gradient of part 2 ---+

    Mappers keep no state from one job to the next; between jobs `weights` is up to date on rank 0 alone. Any
    algorithm whose statistics are sums over the examples fits this form.

    Every rank must call `backward` at least once per step, with empty windows if it has none.

    Cost per step, n bytes of gradient and n of weights on p ranks: a binomial broadcast and a binomial reduce. Rank 0
    receives ceil(lg p) messages of n bytes, then sends ceil(lg p): the time of 2 ceil(lg p) n bytes, against
    2n(p-1)/p for a ring all-reduce. All ranks together send 2n(p-1) bytes.

    Source: Chu et al. 2006, "Map-Reduce for Machine Learning on Multicore", NIPS 19, 281-288: the summation form,
    and backpropagation, where mappers find partial gradients and the reducer adds them up.
    """

    _algorithm = "binomial"
    _all_have_weights = True  # those of rank 0

    def _begin_job(self) -> None:
        """Broadcast the weights, if they changed since the last broadcast."""
        if not self._all_have_weights:
            self._send_weights()
            self._all_have_weights = True

    def backward(self, windows: Array, scale: float, noise: Noise | None = None, last: bool = True) -> float:
        """The map."""
        self._begin_job()
        return super().backward(windows, scale, noise, last)

    def step(self, learning_rate: float) -> bool:
        """The reduction, and the update on rank 0."""
        changed = self._reduce_and_update(learning_rate)
        self._all_have_weights = not changed
        return changed

    def loss(self, windows: Array) -> float:
        """Also a map. All ranks must call."""
        self._begin_job()
        return super().loss(windows)

    def logits(self, tokens: Array) -> Array:
        """Also a map. All ranks must call."""
        self._begin_job()
        return super().logits(tokens)

    def restore(self, vectors: Mapping[str, Sequence[Shard]], numbers: Mapping[str, float]) -> None:
        """Rank 0 resumes from these; the others get its weights with the next job."""
        super().restore(vectors, numbers)
        self._all_have_weights = False
