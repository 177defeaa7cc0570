"""Embedding: a vector for each entry of a vocabulary."""

from simdist.arrays import Array
from simdist.errors import ArrayError
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["Embedding", "TextEmbedding"]


class Embedding(Layer):
    """A vector for each entry, side by side for the entries of an example: (n, k) integers to (n, k * width)."""

    def __init__(self, name: str, entries: int, width: int) -> None:
        self.table = Parameter(f"{name}.table", (entries, width), std=1.0)
        self.parameters = (self.table,)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is the entries, x."""
        rows, columns = x.shape
        return f.embedding(x, self.table.data).reshape(rows, columns * self.table.shape[1]), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Integers have no derivative, so an empty array is returned; dy is pending."""
        return dy[:, :0].copy(), dy  # a view would keep dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add each part of dy to the row of the table that it came from."""
        f.embedding_backward(context, pending, self.table.gradient)


class TextEmbedding(Layer):
    """A vector for each token, plus one for its position: (n, t) integers to (n, t, width).

    Args:
        vocabulary: the number of different tokens.
        places: the most tokens that a text may have; 0 for no limit and no position vectors.
        std: of the initial values of both tables.
    """

    def __init__(self, name: str, vocabulary: int, places: int, width: int, std: float) -> None:
        self.tokens = Parameter(f"{name}.tokens", (vocabulary, width), std=std)
        self.places = Parameter(f"{name}.places", (places, width), std=std) if places else None
        self.parameters = (self.tokens, self.places) if self.places else (self.tokens,)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Array]:
        """The context is the tokens, x.

        Raises:
            ArrayError: there are more tokens than places.
        """
        if self.places is not None and x.shape[1] > self.places.shape[0]:
            raise ArrayError(f"a text of {x.shape[1]} tokens; this model has {self.places.shape[0]} places")
        y = f.embedding(x, self.tokens.data)
        return (y if self.places is None else f.positions(y, self.places.data)), x

    def backward_input(self, context: Array, dy: Array) -> tuple[Array, Array]:
        """Integers have no derivative, so an empty array is returned; dy is pending."""
        return dy[:, :, :0].copy(), dy  # a view would keep dy

    def backward_weight(self, context: Array, pending: Array) -> None:
        """Add each vector of dy to that of its token and that of its position."""
        f.embedding_backward(context, pending, self.tokens.gradient)
        if self.places is not None:
            f.positions_backward(pending, self.places.gradient)
