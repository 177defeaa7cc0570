"""MapReduce: gradient descent as a map over the parts of a batch and a reduction of the results."""

from collections.abc import Mapping, Sequence

from simdist.arrays import Array
from simdist.nn import Noise
from simdist.parallel.holding import Shard
from simdist.parallel.root import RootMethod

__all__ = ["MapReduce"]


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
