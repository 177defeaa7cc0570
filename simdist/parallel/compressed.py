"""Compressed data parallelism: gradients summed with fewer bytes sent."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from simdist.arrays import hold, partition
from simdist.collectives import reduce_scatter
from simdist.comm import Communicator
from simdist.nn import Model
from simdist.parallel.compression import compressor
from simdist.parallel.data_parallel import DataParallel
from simdist.parallel.holding import Shard
from simdist.parallel.method import GRADIENTS
from simdist.parallel.recipe import Recipe

__all__ = ["Comparison", "Compressed", "compare"]

_PUT_OFF = "compression.put_off/"


class Compressed(DataParallel):
    """`DataParallel` whose all-reduce is a compressor's sum.

        rank 0     gradient 0 + residual 0  -->  packet 0  --+            +--> approximate sum, the same bits
        rank 1     gradient 1 + residual 1  -->  packet 1  --+--> sum  ---+--> the same
                                    residual 1 <-- what the packet leaves out, for the next step

    The weights stay equal on all ranks, but differ from those of one rank with the whole batch: a part of each
    gradient is applied some steps late. This makes little difference to SGD, which sums gradients; rules of the
    Adam family, which divide by the size of gradients, lose more.

    Args:
        model, comm, recipe, seed: as of `DataParallel`; the precision is float32 or float64.
        compression: one of `compressions()`.
        settings: of the compression: the share of items that top-k sends, the items per block that share a scale in
            8-bit quantization, the rank of PowerSGD's matrices.

    Attributes:
        compressor: with its counts, `sent_bytes` against `plain_bytes`.

    A checkpoint keeps the sum of all ranks' residuals, so any number of ranks may resume from it and no gradient is
    lost; another method that resumes drops them. It keeps neither the residual of each rank nor PowerSGD's Q, so a
    resumed run is not bit-identical to one that was not stopped.

    Cost per rank and step: the compressor's. Memory: the compressor's `state`.

    Raises:
        ArrayError: the precision has 16 bits.
        UnknownNameError: there is no such compression, or it has no such setting.
    """

    def __init__(
        self, model: Model, comm: Communicator, recipe: Recipe, seed: int, compression: str, **settings: Any
    ) -> None:
        super().__init__(model, comm, recipe, seed)
        self.compressor = compressor(compression, self.gradient, model.parameters, **settings)
        hold("buffers", list(self.compressor.state.values()))

    @property
    def item_bytes(self) -> int:
        """See Learner."""
        return self.compressor.item_bytes

    def reduce(self) -> None:
        """Sum `gradient` over all ranks, compressed."""
        with self.comm.span(GRADIENTS, self.gradient.nbytes):
            self.compressor.reduce(self.gradient, self.comm)

    # -- checkpoints ----------------------------------------------------------------------------------

    def vectors(self) -> dict[str, list[Shard]]:
        """See Learner; also this rank's part of the sum of all residuals, by a reduce-scatter."""
        left = reduce_scatter(self.compressor.put_off(self.comm.rank), self.comm)
        return super().vectors() | {_PUT_OFF: [Shard(self._part.start, left)]}

    def restore(self, vectors: Mapping[str, Sequence[Shard]], numbers: Mapping[str, float]) -> None:
        """Each rank's residual becomes its part of the sum of all residuals, and zero elsewhere."""
        rest = dict(vectors)
        (part,) = rest.pop(_PUT_OFF)
        super().restore(rest, numbers)
        left = self.compressor.put_off(self.comm.rank)
        left[...] = 0
        left[self._part] = part.data
        self.compressor.take_up(left)

    @property
    def _part(self) -> slice:
        """This rank's part of the sum of all residuals."""
        return partition(len(self.weights), self.comm.size)[self.comm.rank]


class Comparison(NamedTuple):
    """A training run with compression beside the same without.

    Attributes:
        compression: its name.
        sent_bytes, plain_bytes: by this rank for gradients, and by the ring all-reduce in its place.
        loss, plain_loss: where both runs ended.
    """

    compression: str
    sent_bytes: int
    plain_bytes: int
    loss: float
    plain_loss: float

    @property
    def saved_share(self) -> float:
        """The part of the bytes that was not sent."""
        return 1 - self.sent_bytes / self.plain_bytes if self.plain_bytes else 0.0

    def __str__(self) -> str:
        return (
            f"{self.compression}: {self.sent_bytes:,} of {self.plain_bytes:,} bytes sent, {self.saved_share:.1%} "
            f"saved; loss {self.loss:.4g}, {self.loss - self.plain_loss:+.2g} against uncompressed"
        )


def compare(train: Callable[[str], tuple[Compressed, float]], names: Iterable[str]) -> list[Comparison]:
    """Train once without compression and once with each of these. All ranks must call.

    Args:
        train: builds the method for a compression's name and trains it, each time from the same start and on the
            same batches; returns it and the loss that it reached.
    """
    plain_loss = train("none")[1]
    found = []
    for name in names:
        method, loss = train(name)
        sent_bytes, plain_bytes = method.compressor.sent_bytes, method.compressor.plain_bytes
        found.append(Comparison(name, sent_bytes, plain_bytes, loss, plain_loss))
    return found
