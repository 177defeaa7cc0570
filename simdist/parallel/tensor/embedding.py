"""Embedding: a table of token vectors with some rows on each rank, used for embeddings and for tied logits."""

from functools import partial
from itertools import pairwise

import numpy as np

from simdist.arrays import Array, charge
from simdist.errors import ArrayError
from simdist.nn import Layer, Noise, Parameter
from simdist.nn import functional as f
from simdist.parallel.sequence.split import Split
from simdist.parallel.tensor.linear import cut
from simdist.parallel.tensor.region import Region

__all__ = ["VocabularyParallelEmbedding", "VocabularyParallelTiedLinear"]


class VocabularyParallelEmbedding(Layer):
    """A vector for each token, plus one for its place: (n, s) integers to the vectors outside of a region.

        token      7  2  5  0
        rank 0     .  #  .  #        has rows 0 … 3 of the table; zeros for other tokens
        rank 1     #  .  #  .        has rows 4 … 7
        sum        #  #  #  #

    Every rank has the vectors of all places, and adds those of its tokens.

    Args:
        vocabulary, places, width, std: as of `TextEmbedding`.
        region: of the ranks that share the table of tokens.
        split: which tokens of a text are in this region; all, if not given.

    Cost per rank: forward `region.leave`, backward `region.enter`, of n s width items.

    Raises:
        ArgumentError: the vocabulary cannot be divided evenly over the ranks.

    Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3.
    """

    def __init__(
        self,
        name: str,
        vocabulary: int,
        places: int,
        width: int,
        std: float,
        region: Region,
        split: Split | None = None,
    ) -> None:
        self.region = region
        self.split = split
        self.tokens = cut(f"{name}.tokens", (vocabulary, width), 0, region.comm, std)
        self.places = Parameter(f"{name}.places", (places, width), std=std) if places else None
        self.parameters = (self.tokens, self.places) if self.places else (self.tokens,)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, tuple[Array, int]]:
        """The context is the tokens in this region, and the length of a text.

        Raises:
            ArrayError: there are more tokens than places, or the region's ranks cannot share them evenly.
        """
        s = x.shape[1]
        if self.places is not None and s > self.places.shape[0]:
            raise ArrayError(f"a text of {s} tokens; this model has {self.places.shape[0]} places")
        if self.split is not None:
            x = self.split.part(x)
        at, inside = self._within(x)
        y = self.region.leave(_masked(f.embedding(at, self.tokens.data), inside))
        if self.places is not None:
            for here, there in self._places(s, y):
                f.positions(y[:, here], self.places.data[there])
        return y, (x, s)

    def backward_input(self, context: tuple[Array, int], dy: Array) -> tuple[Array, tuple[Array, Array]]:
        """Integers have no derivative, so the result is empty. Pending is dy, of this rank's tokens and of all."""
        return dy[:, :, :0].copy(), (dy, self.region.enter(dy))

    def backward_weight(self, context: tuple[Array, int], pending: tuple[Array, Array]) -> None:
        """Add each vector of dy to that of its token, if this rank has it, and that of its place."""
        (x, s), (dy, of_all) = context, pending
        at, inside = self._within(x)
        f.embedding_backward(at, _masked(of_all.copy(), inside), self.tokens.gradient)
        if self.places is not None:
            for here, there in self._places(s, dy):
                f.positions_backward(dy[:, here], self.places.gradient[there])

    def _within(self, x: Array) -> tuple[Array, Array]:
        """The indices of the tokens in this rank's rows, and which tokens these rows include."""
        rows = self.tokens.place.index[0]
        return f.within(x, rows.start, rows.stop - rows.start)

    def _places(self, s: int, y: Array) -> list[tuple[slice, slice]]:
        """The places of this rank's tokens outside of the region, in texts of s tokens: see `_runs`."""
        numbers = np.arange(s) if self.split is None else self.split.own(s)
        return _runs(numbers[self.region.tokens(y.shape[1])])


class VocabularyParallelTiedLinear(Layer):
    """y = x @ table.T: the logits of this rank's part of the vocabulary.

    Args:
        table: this rank's rows of the embedding.
        region: of the ranks that share the table; x is outside of it, y inside.

    Cost per rank: as of a `ColumnParallelLinear`.

    Source: Press and Wolf 2017, arXiv 1608.05859; Shoeybi et al. 2019, arXiv 1909.08053, section 3.
    """

    name = "logits"

    def __init__(self, table: Parameter, region: Region) -> None:
        self.table = table
        self.region = region
        self.parameters = (table,)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is x."""
        table = self.table.data
        return self.region.enter_through(x, len(table), partial(f.linear, w=table.T))[1], x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Returns dy @ table, summed over the ranks; dy itself is pending."""
        table = self.table.data
        return self.region.leave_through(dy, table.shape[1], partial(f.linear, w=table)), dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add dy.T @ x."""
        for x, dy in self.region.each_run(context, pending):
            f.linear_backward_weight(dy, x, self.table.gradient)


def _masked(y: Array, inside: Array) -> Array:
    """y, in place, with zeros for tokens that are not inside."""
    np.multiply(y, inside[..., None], out=y)
    charge(y.size, 2 * y.nbytes + inside.nbytes)
    return y


def _runs(numbers: Array) -> list[tuple[slice, slice]]:
    """Runs of consecutive numbers, each as two slices: of its indices in the list, and of its numbers."""
    ends = np.flatnonzero(np.diff(numbers) != 1) + 1
    bounds = [0, *ends.tolist(), len(numbers)]
    return [(slice(a, b), slice(int(numbers[a]), int(numbers[a]) + b - a)) for a, b in pairwise(bounds) if b > a]
