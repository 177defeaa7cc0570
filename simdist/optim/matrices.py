"""Matrices: those of a flat vector, for rules that work on whole ones."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from simdist.arrays import Array
from simdist.errors import ArgumentError

__all__ = ["Matrices", "Matrix", "Whole", "whole_here"]


class Matrix(NamedTuple):
    """A parameter of two axes or more in a model's flat vector.

    Attributes:
        name, shape: the parameter's.
        of: the shape of the whole model's parameter, of which other ranks may have other rows, columns or experts.
        span: its slice of the whole vector.
        own: the slice of a rank's own vector with those of its items that the rank holds; may be empty.
    """

    name: str
    shape: tuple[int, ...]
    of: tuple[int, ...]
    span: slice
    own: slice


Whole = Callable[[Array, Sequence[Matrix]], Iterator[tuple[Matrix, Array, slice]]]
"""for matrix, items, held in whole(x, chosen): those of the chosen matrices of which a rank with its own vector x holds
any items, all their items, flat, and which of these it holds. All ranks that hold parts call it, and go to its end."""


class Matrices(list[slice]):
    """The matrices of a rank's own vector: a list of their slices of it, as `decay` and `layers` take them."""

    def __init__(self, known: Iterable[Matrix], whole: Whole) -> None:
        self.known = list(known)
        self.whole = whole
        super().__init__(matrix.own for matrix in self.known)


def whole_here(x: Array, chosen: Sequence[Matrix]) -> Iterator[tuple[Matrix, Array, slice]]:
    """`Whole` of a rank that holds all of each matrix or nothing; raises ArgumentError if it holds a part."""
    for matrix in chosen:
        size, items = matrix.span.stop - matrix.span.start, x[matrix.own]
        if 0 < len(items) < size:
            raise ArgumentError(f"of {matrix.name} {len(items)} of {size} items are here, and nothing gathers the rest")
        if len(items):
            yield matrix, items, slice(0, size)
