"""Grid: an all-reduce in two dimensions, first within rows of ranks, then between them.

    p   ranks, in rows of equal length          n   items
    R   the length of a row                     C   the length of a column, p / R

    reduce-scatter along the rows     each rank holds its row's sum of 1/R of the array
    all-reduce along the columns      each rank holds everybody's sum of that part
    all-gather along the rows         each rank holds everybody's sum of the whole

A row and a column together have fewer ranks than one ring over all, so there are fewer latencies; the bytes are
the same. The caller says what a row is: a node, or a row of a torus.
"""

from dataclasses import replace
from typing import Any, NamedTuple, cast

from simdist.arrays import Array, Reduction, partition
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.phases import in_turn, over_nodes, phase
from simdist.collectives.registry import find
from simdist.collectives.rounds import shift
from simdist.comm import Communicator

__all__ = ["Grid", "Phases", "node_and_column", "rows_and_columns"]


class Grid(NamedTuple):
    """The two groups that a rank of a grid belongs to."""

    row: Communicator
    column: Communicator


def rows_and_columns(comm: Communicator, name: str, row: int) -> Grid:
    """This rank's row, and the column of the ranks at its place in the rows.

    Split once and kept with the communicator, under `name`.

    Args:
        row: the number of this rank's row.
    """
    if name not in comm.attached:
        members = cast(Communicator, comm.split(row, comm.rank))
        comm.attached[name] = Grid(members, cast(Communicator, comm.split(members.rank, row)))
    return cast(Grid, comm.attached[name])


def node_and_column(comm: Communicator) -> Grid:
    """The ranks of this one's node, and those at its place on all nodes: of a node's first rank all first ranks."""
    return rows_and_columns(comm, "nodes", comm.node)


class Phases(NamedTuple):
    """The names of the three algorithms that make up an all-reduce on a grid."""

    reduce_scatter: str = "ring"
    all_reduce: str = "ring"
    all_gather: str = "ring"

    def run(self, x: Array, grid: Grid, op: Reduction, **along_rows: Any) -> None:
        """Replace x by its reduction over the grid.

        Args:
            along_rows: options of the first and the last algorithm.
        """
        row, column = grid
        chunks = partition(len(x), row.size)
        reduce_scatter, all_reduce, all_gather = map(find, self._fields, self)
        reduce_scatter.run(x, row, op, **along_rows)
        all_reduce.run(x[chunks[row.rank]], column, op)
        all_gather.run(x, row, chunks, **along_rows)

    def cost(self, case: Case, row_size: int, **along_rows: Any) -> Cost:
        """What one rank does, where a row is row_size consecutive ranks; options as of `run`."""
        row, place = divmod(case.rank, row_size)
        whole = Case(row_size, case.num_bytes, place, itemsize=case.itemsize)
        column = _column(case, row_size, whole.chunk_bytes(place), row)
        reduce_scatter, all_reduce, all_gather = map(find, self._fields, self)
        rows = in_turn(reduce_scatter.cost(whole, **along_rows), all_gather.cost(whole, **along_rows))
        phases = in_turn(rows, all_reduce.cost(column))
        if place == 0:
            return phases
        first = self.cost(replace(case, rank=case.rank - place), row_size, **along_rows)
        return phases._replace(steps=first.steps)  # chunk 0 is the longest

    def formula(self, case: Case, row_size: int, **along_rows: Any) -> Formula:
        """The sum of the three published times; options as of `run`.

        Rows stay inside nodes that consist of whole rows. Rows that consist of whole nodes are rings over these. Of any
        others two may leave a node at once, perhaps by the same card. As many columns leave a node as messages of a
        shift by a row.
        """
        k = case.per_node
        alone = row_size % k == 0 or row_size == case.ranks
        whole = Case(row_size, case.num_bytes, 0, 0, case.itemsize, k if alone else 0, case.one_memory)
        reduce_scatter, all_reduce, all_gather = map(find, self._fields, self)
        rows = in_turn(reduce_scatter.formula(whole, **along_rows), all_gather.formula(whole, **along_rows))
        columns = all_reduce.formula(_column(case, row_size, whole.chunk_bytes(0)))
        across = shift(case, row_size).messages
        if case.on_one_node or k % row_size == 0:
            return over_nodes(case, rows, columns, senders=across)
        return in_turn(rows if alone else phase(rows, 2, k), phase(columns, across))


def _column(case: Case, row_size: int, num_bytes: int, rank: int = 0) -> Case:
    """The case of one column; a node that holds several rows holds as many ranks of each column."""
    rows = case.ranks // row_size
    return Case(rows, num_bytes, rank, itemsize=case.itemsize, ranks_per_node=-(-case.ranks_per_node // row_size))
