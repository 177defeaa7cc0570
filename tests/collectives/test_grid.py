"""Rows and columns of ranks, and the cost of phases one after the other."""

from math import inf

import pytest
from anatomy import UNIT

from simdist.cluster import Link
from simdist.collectives import Case, Cost, Formula
from simdist.collectives.grid import Phases, rows_and_columns
from simdist.collectives.phases import in_turn, over_nodes
from simdist.comm.virtual.world import run_virtual


def test_a_rank_sits_in_a_row_and_in_a_column():
    def program(comm):
        grid = rows_and_columns(comm, "rows of three", comm.rank // 3)
        assert rows_and_columns(comm, "rows of three", comm.rank // 3) is grid
        return list(grid.row.ranks), list(grid.column.ranks)

    results, _, _ = run_virtual(program, 6, UNIT)
    assert [row for row, _ in results] == [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3
    assert [column for _, column in results] == [[0, 3], [1, 4], [2, 5]] * 2


def test_two_grids_of_the_same_ranks_do_not_mix():
    def program(comm):
        grids = [rows_and_columns(comm, f"rows of {k}", comm.rank // k) for k in (2, 3)]
        return [list(grid.row.ranks) for grid in grids]

    assert run_virtual(program, 6, UNIT)[0][4] == [[4, 5], [3, 4, 5]]


def test_costs_and_formulas_in_turn_add_up():
    assert in_turn(Cost(1, 2, 3, 4), Cost(10, 20, 30), Cost(5, 5, 5, 5)) == Cost(16, 27, 38, 9)
    total = in_turn(Formula(1, 0.5), Formula(2, 1.5, 3))
    assert (total, type(total)) == (Formula(3, 2.0, 3), Formula)


@pytest.mark.parametrize("row_size", [1, 2, 4, 8])
def test_a_grid_moves_the_bytes_of_a_ring_in_fewer_steps(row_size):
    cost = Phases().cost(Case(8, 800, 3), row_size)
    assert cost[2:4] == (1400, 700)
    assert cost.steps == cost.messages == 2 * (row_size - 1) + 2 * (8 // row_size - 1)


def test_phases_inside_nodes_go_over_the_link_that_is_there():
    inside, between, slow, fast = Formula(2, 900, 30), Formula(1, 50), Link(5e-6, 1e9), Link(1e-6, 1e10)
    whole = over_nodes(Case(8, 100, ranks_per_node=4), inside, between)
    assert whole == (3, 950, 30)
    assert whole.seconds(slow, 1e11, fast) == inside.seconds(fast, 1e11) + between.seconds(slow, 1e11)
    assert whole.seconds(slow, 1e11) == pytest.approx(Formula(*whole).seconds(slow, 1e11))
    on_one_node = over_nodes(Case(8, 100, ranks_per_node=8), inside, between)
    assert on_one_node.seconds(slow, 1e11, fast) == Formula(*whole).seconds(slow, 1e11)
    assert over_nodes(Case(8, 100, ranks_per_node=4), Formula(inf, inf), between).seconds(slow, 1e11, fast) == inf
