"""Torus: the ranks in rows and columns, each row a ring and each column a ring.

    p   ranks           rows        how many rows
    n   items           columns     how many ranks a row has, p / rows

Source: Mikami, Suganuma, U-chupala, Tanaka, Kageyama 2018, arXiv 1811.05233: 2D-torus all-reduce.
"""

from math import isqrt

from simdist.arrays import Array, Reduction
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.grid import Phases, rows_and_columns
from simdist.collectives.registry import algorithm
from simdist.comm import Communicator
from simdist.errors import ArgumentError, require_whole

__all__ = ["most_square", "torus_all_reduce"]

_RINGS = Phases("ring", "ring", "ring")


def most_square(ranks: int) -> tuple[int, int]:
    """The rows and columns of the most nearly square torus of this many ranks, with no more rows than columns."""
    return next((rows, ranks // rows) for rows in range(isqrt(ranks), 0, -1) if ranks % rows == 0)


def _columns(ranks: int, rows: int | None) -> int:
    """The length of a row: of the most square torus, where rows is not given."""
    if rows is None:
        return most_square(ranks)[1]
    require_whole("rows", rows, 1)
    if ranks % rows:
        raise ArgumentError(f"rows is {rows}, which does not divide the {ranks} ranks of the torus")
    return ranks // rows


def _cost(case: Case, rows: int | None = None) -> Cost:
    return _RINGS.cost(case, _columns(case.ranks, rows))


def _formula(case: Case, rows: int | None = None) -> Formula:
    return _RINGS.formula(case, _columns(case.ranks, rows))


@algorithm("all_reduce", "torus", cost=_cost, formula=_formula)
def torus_all_reduce(x: Array, comm: Communicator, op: Reduction, rows: int | None = None) -> None:
    """Replace x by its reduction over all ranks: reduce-scatter round the rows, all-reduce round the columns,
    all-gather round the rows.

    On eight ranks, two rows of four:

        +-> 0 --> 1 --> 2 --> 3 --+     1.  rows: 0 and 4 hold their row's sum of chunk 0, 1 and 5 of chunk 1, …
        |   |     |     |     |   |     2.  columns: 0 and 4 hold the sum of all of chunk 0, …
        +---|-----|-----|-----|---+     3.  rows: all hold all
        +-> 4 --> 5 --> 6 --> 7 --+
        |   |     |     |     |   |
        +---|-----|-----|-----|---+

    A prime number of ranks has one row, and the torus is a ring. In three dimensions, as on TPUs, a node is the first:
    "hierarchical" with all_reduce="torus".

    Args:
        x: shape (n,), contiguous, the same length and dtype on every rank; overwritten.
        rows: how many rows; by default those of the most square torus, with no more rows than columns.

    Cost per rank: 2(columns-1) + 2(rows-1) messages, 2n(p-1)/p bytes sent, n(p-1)/p reduced.

    Raises:
        ArgumentError: rows does not divide the ranks; on every rank.
    """
    columns = _columns(comm.size, rows)
    _RINGS.run(x, rows_and_columns(comm, f"torus of rows of {columns}", comm.rank // columns), op)
