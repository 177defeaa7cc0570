"""The hierarchical reduce-scatter and all-gather: equal and unequal nodes, what leaves them, counts, steps."""

import numpy as np
import pytest
from anatomy import PAPER, RANKS, UNIT, dissect, hold, seconds

import simdist as sd
from simdist.cluster import Link
from simdist.collectives import all_gather, formula, reduce_scatter

BOTH = pytest.mark.parametrize("operation", ["reduce_scatter", "all_gather"])
BY_TWO = UNIT.with_(devices_per_node=2)


@pytest.mark.slow(but=10)
@BOTH
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("per_node", [1, 2, 3, 4])
def test_results_counts_and_steps(operation, p, per_node):
    cluster = UNIT.with_(devices_per_node=per_node)
    hold(operation, "hierarchical", p, cluster=cluster, ranks_per_node=per_node)


def test_inside_then_between_and_the_other_way_round():
    give = [np.ones(12, np.int8)] * 6
    for operation, inside_s, between_s in (("reduce_scatter", {0.0}, {1.0, 2.0}), ("all_gather", {2.0}, {0.0, 1.0})):
        run = dissect(operation, "hierarchical", give, cluster=BY_TWO)
        inside = [s for s in run.sends if s.rank // 2 == s.peer // 2]
        between = [s for s in run.sends if s.rank // 2 != s.peer // 2]
        assert {(s.rank, s.peer, s.bytes) for s in inside} == {(r, r ^ 1, 6) for r in range(6)}
        assert {(s.rank, s.peer, s.bytes) for s in between} == {(r, (r + 2) % 6, 2) for r in range(6)}
        assert ({s.start_s for s in inside}, {s.start_s for s in between}) == (inside_s, between_s)


@BOTH
def test_a_share_of_a_node_leaves_each_rank_and_all_share_the_way_out(operation):
    """Of n bytes n/k leave each rank of the node; in a ring of all n leave one, and the others wait for it."""
    cluster = PAPER.with_(devices_per_node=8, nics_per_node=8, inside=Link(3e-6, 450e9), between=Link(5e-6, 50e9))
    took = {name: seconds(operation, name, 16, 16 << 24, cluster=cluster) for name in ("ring", "hierarchical")}
    assert took["hierarchical"] < 0.4 * took["ring"]


@BOTH
@pytest.mark.parametrize(("p", "per_node"), [(8, 4), (12, 3), (8, 8), (7, 3)])
def test_takes_as_long_as_the_formula_says(operation, p, per_node):
    cluster = PAPER.with_(devices_per_node=per_node, nics_per_node=per_node, inside=Link(1e-6, 450e9))
    n = p * 100_000
    told_s = formula(operation, "hierarchical", ranks=p, num_bytes=n, ranks_per_node=per_node).on(cluster, p)
    assert seconds(operation, "hierarchical", p, n, cluster=cluster) == pytest.approx(told_s, rel=1e-9)


def test_shards_of_any_length():
    def program(comm):
        return all_gather(np.full(comm.rank % 3, comm.rank), comm, "hierarchical")

    for found in sd.run(program, ranks=6, cluster=BY_TWO).results:
        assert found.tolist() == [1, 2, 2, 4, 5, 5]


def test_ranks_that_do_not_come_node_after_node():
    """As on an axis of a mesh: of four ranks on two nodes those are neighbours that are not next to each other."""

    def program(comm):
        turned = comm.split(0, [0, 2, 1, 3][comm.rank])
        assert list(turned.nodes) == [0, 1, 0, 1]
        own = reduce_scatter(np.arange(7) * 10**turned.rank, turned, algorithm="hierarchical")
        return turned.rank, own.tolist(), all_gather(own, turned, "hierarchical").tolist()

    total = [1111 * i for i in range(7)]
    for rank, own, full in sd.run(program, ranks=4, cluster=BY_TWO).results:
        assert own == [total[:2], total[2:4], total[4:6], total[6:]][rank]
        assert full == total
