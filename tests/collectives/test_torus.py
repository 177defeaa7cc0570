"""The 2D torus: rows and columns, counts, steps, formula."""

import numpy as np
import pytest
from anatomy import PAPER, RANKS, costs, dissect, hold, predicted, seconds

from simdist.cluster import Link
from simdist.collectives import Case, formula
from simdist.collectives.registry import find
from simdist.errors import ArgumentError


@pytest.mark.parametrize("p", [*RANKS, 12])
def test_results_counts_and_steps(p):
    hold("all_reduce", "torus", p)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6, 12])
def test_any_rows_that_divide(rows):
    hold("all_reduce", "torus", 12, rows=rows)


def test_talks_along_rows_then_columns_then_rows():
    run = dissect("all_reduce", "torus", [np.ones(8, np.int8)] * 8)  # two rows of four
    row = {(r, r // 4 * 4 + (r + 1) % 4) for r in range(8)}
    column = {(r, (r + 4) % 8) for r in range(8)}
    at = [{(s.rank, s.peer) for s in run.sends if s.start_s == second} for second in range(8)]
    assert at == [row] * 3 + [column] * 2 + [row] * 3


@pytest.mark.parametrize(("p", "messages"), [(4, 4), (6, 6), (7, 12), (9, 8), (12, 10), (16, 12)])
def test_as_square_as_can_be(p, messages):
    # 2(columns-1) + 2(rows-1): 4 = 2x2, 6 = 2x3, 7 = 1x7, 9 = 3x3, 12 = 3x4, 16 = 4x4
    assert costs("all_reduce", "torus", p, 8)[0].messages == messages


@pytest.mark.parametrize(("columns", "rows"), [(32, 32), (64, 32), (72, 48)])
def test_the_grids_of_its_paper(columns, rows):
    """Mikami et al. 2018: 2(X-1) + 2(Y-1) messages, where a ring has 2(XY-1): of 1024 ranks 124 and 2046."""
    p = columns * rows
    found = formula("all_reduce", "torus", ranks=p, num_bytes=4 * p, rows=rows)
    assert found.latencies == 2 * (columns - 1) + 2 * (rows - 1)
    ring = formula("all_reduce", "ring", ranks=p, num_bytes=4 * p)
    assert (ring.latencies, ring.bytes) == (2 * (p - 1), found.bytes)


@pytest.mark.parametrize(("p", "columns"), [(6, 3), (12, 4)])
def test_with_no_more_rows_than_columns(p, columns):
    sends = dissect("all_reduce", "torus", [np.ones(p, np.int8)] * p).sends
    first = [(s.rank, s.peer) for s in sends if s.start_s == 0]
    assert sorted(first) == [(r, r // columns * columns + (r + 1) % columns) for r in range(p)]


@pytest.mark.parametrize("p", [2, 3, 7])
def test_a_prime_number_of_ranks_is_a_ring(p):
    give = [np.ones(2 * p + 1, np.int8)] * p
    torus, ring = dissect("all_reduce", "torus", give), dissect("all_reduce", "ring", give)
    assert [(s.rank, s.peer, s.start_s, s.bytes) for s in torus.sends] == [
        (s.rank, s.peer, s.start_s, s.bytes) for s in ring.sends
    ]


def test_moves_as_few_bytes_as_a_ring():
    assert (
        costs("all_reduce", "torus", 12, 1200)[5][2:4] == costs("all_reduce", "ring", 12, 1200)[5][2:4] == (2200, 1100)
    )


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        *((rows, f"rows is {rows}, which does not divide the 6 ranks") for rows in (4, 7)),
        *((rows, f"rows is {rows}; needs at least 1") for rows in (0, -1)),
        *((rows, f"rows is {rows!r}; needs a whole number") for rows in (2.0, "2")),
    ],
)
def test_rows_must_divide_the_ranks(rows, why):
    with pytest.raises(ArgumentError, match=why):
        dissect("all_reduce", "torus", [np.ones(3)] * 6, rows=rows)
    with pytest.raises(ArgumentError, match=why):
        costs("all_reduce", "torus", 6, 8, rows=rows)


@pytest.mark.parametrize("p", [2, 6, 12, 16])
@pytest.mark.parametrize("num_bytes", [240, 240 * 100_003])
def test_takes_as_long_as_the_formula_says(p, num_bytes):
    assert seconds("all_reduce", "torus", p, num_bytes) == pytest.approx(
        predicted("all_reduce", "torus", p, num_bytes), rel=1e-9
    )


@pytest.mark.parametrize("rows", [2, 4, 8])
@pytest.mark.parametrize("num_bytes", [256, 256 * 100_003])
def test_rows_inside_nodes_take_the_link_that_is_there(rows, num_bytes):
    cluster = PAPER.with_(devices_per_node=8, nics_per_node=8, inside=Link(1e-6, 450e9))
    case = Case(16, num_bytes, ranks_per_node=8)
    found_s = seconds("all_reduce", "torus", 16, num_bytes, cluster=cluster, rows=rows)
    assert found_s <= find("all_reduce", "torus").formula(case, rows=rows).on(cluster, 16) * (1 + 1e-9)
    if rows == 2:  # else two ranks of a column share a node, though its slowest step is the same
        assert found_s == pytest.approx(find("all_reduce", "torus").formula(case, rows=rows).on(cluster, 16), rel=1e-9)


def test_rows_over_several_nodes_take_the_slow_link():
    cluster = PAPER.with_(devices_per_node=4, inside=Link(1e-6, 450e9))
    slow, fast = (
        find("all_reduce", "torus").formula(Case(16, 1 << 20, ranks_per_node=4), rows=rows) for rows in (2, 4)
    )
    assert slow.on(cluster, 16) >= slow.seconds(cluster.between, 200e9) > fast.on(cluster, 16)
