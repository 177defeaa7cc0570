"""Ring: the pictures of the docstrings, counts, steps, formulas, and rings of other shapes."""

import numpy as np
import pytest
from anatomy import RANKS, dissect, hold, predicted, rounds, seconds

from simdist.cluster import Link, preset
from simdist.collectives import cost, formula
from simdist.errors import ArgumentError

OPERATIONS = ("reduce_scatter", "all_gather", "all_reduce")


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_results_counts_and_steps(operation, p):
    hold(operation, "ring", p)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("order", [[3, 1, 4, 0, 2], [4, 3, 2, 1, 0], range(4, -1, -1)])
def test_in_any_order(operation, order):
    hold(operation, "ring", 5, order=order)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_all_talk_to_their_neighbours_alone(operation):
    order = [0, 2, 3, 1]
    run = dissect(operation, "ring", [np.ones(8, np.int8)] * 4, order=order)
    assert {(s.rank, s.peer) for s in run.sends} == {(0, 2), (2, 3), (3, 1), (1, 0)}
    assert all(len(messages) == 4 for messages in rounds(run))


def test_a_chunk_sets_out_behind_its_owner_and_ends_at_home():
    # Ten items in chunks of 3, 3, 2, 2: in step 1 ranks 0 … 3 send chunks 3, 0, 1, 2.
    run = dissect("reduce_scatter", "ring", [np.ones(10, np.int8)] * 4)
    sizes = [[messages[r, (r + 1) % 4] for r in range(4)] for messages in rounds(run)]
    assert sizes == [[2, 3, 3, 2], [2, 2, 3, 3], [3, 2, 2, 3]]


def test_a_rank_passes_on_what_it_has_just_received():
    chunks = [slice(0, 1), slice(1, 3), slice(3, 7), slice(7, 15)]  # of 1, 2, 4 and 8 items
    whole = np.arange(15, dtype=np.int8)
    give = [np.where((whole >= c.start) & (whole < c.stop), whole, -1) for c in chunks]
    run = dissect("all_gather", "ring", give, chunks=chunks)
    sizes = [[messages[r, (r + 1) % 4] for r in range(4)] for messages in rounds(run)]
    assert sizes == [[1, 2, 4, 8], [8, 1, 2, 4], [4, 8, 1, 2]]
    assert all((x == whole).all() for x in run.results)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], [], 3, [0, 1, None], [0, 1, 2.0], ["0", "1", "2"]])
@pytest.mark.parametrize("name", ["ring", "bidirectional_ring"])
def test_an_order_names_each_rank_once(name, order):
    with pytest.raises(ArgumentError, match="each of the ranks 0 to 2"):
        dissect("all_reduce", name, [np.ones(4)] * 3, order=order)
    for told in (cost, formula):
        with pytest.raises(ArgumentError, match="each of the ranks 0 to 2"):
            told("all_reduce", name, ranks=3, num_bytes=12, order=order)


@pytest.mark.parametrize("name", ["ring", "bidirectional_ring"])
def test_an_order_may_be_any_collection_of_whole_numbers(name):
    for order in ((2, 0, 1), np.array([2, 0, 1], np.int8), dict.fromkeys([2, 0, 1])):
        hold("all_reduce", name, 3, order=order)


@pytest.mark.parametrize("p", [2, 3, 8, 15])
@pytest.mark.parametrize("num_bytes", [120, 120 * 100_003])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_takes_as_long_as_the_formula_says(operation, p, num_bytes):
    assert seconds(operation, "ring", p, num_bytes) == pytest.approx(
        predicted(operation, "ring", p, num_bytes), rel=1e-9
    )


@pytest.mark.parametrize(("p", "num_bytes", "ms"), [(64, 10**8, 8.997), (8, 1024, 0.0701)])
def test_published_figures(p, num_bytes, ms):
    for found_s in (seconds("all_reduce", "ring", p, num_bytes), predicted("all_reduce", "ring", p, num_bytes)):
        assert found_s * 1e3 == pytest.approx(ms, rel=1e-3)


@pytest.mark.parametrize(
    ("machine", "k", "p"), [("v100", 8, 9), ("v100", 8, 32), ("a100", 3, 8), ("this-machine", 4, 10)]
)
@pytest.mark.parametrize("num_bytes", [64, 65_536, 1_500_000, 48_000_000])
@pytest.mark.parametrize("operation", ["reduce_scatter", "all_gather", "all_reduce"])
def test_over_nodes_short_chunks_do_not_wait_for_the_slowest_step(operation, num_bytes, machine, k, p):
    """Each step was taken to be one between nodes: up to three times too long for chunks that leave at once."""
    cluster = preset(machine).with_(devices_per_node=k)
    found_s = seconds(operation, "ring", p, num_bytes, cluster=cluster)
    told = formula(operation, "ring", ranks=p, num_bytes=num_bytes, ranks_per_node=k)
    assert told.on(cluster, p) == pytest.approx(found_s, rel=0.03)


@pytest.mark.parametrize(("k", "p"), [(1, 4), (3, 6), (4, 7)])
@pytest.mark.parametrize("longer", [-4, 0, 4])
def test_the_longest_chunk_that_does_not_wait(k, p, longer):
    """Where nodes have one rank each, none of its p-1 steps is inside a node; elsewhere it waits for k-2 others."""
    cluster = preset("h100").with_(devices_per_node=k, nics_per_node=1, between=Link(5e-6, 10e9))
    num_bytes = p * (cluster.eager_bytes + longer)
    told = formula("all_gather", "ring", ranks=p, num_bytes=num_bytes, itemsize=4, ranks_per_node=k)
    assert told.on(cluster, p) == pytest.approx(seconds("all_gather", "ring", p, num_bytes, cluster=cluster), rel=1e-9)
