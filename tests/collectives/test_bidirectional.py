"""Ring in both directions: who gets what from which side, counts, steps, time."""

import numpy as np
import pytest
from anatomy import RANKS, dissect, hold, predicted, seconds

from simdist.cluster import Link, preset
from simdist.collectives import formula


@pytest.mark.parametrize("p", RANKS)
def test_results_counts_and_steps(p):
    hold("all_reduce", "bidirectional_ring", p)


@pytest.mark.parametrize("order", [[3, 1, 4, 0, 2], [4, 3, 2, 1, 0]])
def test_in_any_order(order):
    hold("all_reduce", "bidirectional_ring", 5, order=order)


def test_half_of_the_array_goes_each_way_in_every_step():
    # Twenty items: halves of ten, in chunks of 3, 3, 2, 2.
    run = dissect("all_reduce", "bidirectional_ring", [np.ones(20, np.int8)] * 4)
    right = [[s.bytes for s in run.sends if (s.rank, s.peer) == (r, (r + 1) % 4)] for r in range(4)]
    left = [[s.bytes for s in run.sends if (s.rank, s.peer) == (r, (r - 1) % 4)] for r in range(4)]
    chunk = [3, 3, 2, 2]
    # Chunk r-k goes right in step k, chunk r+k goes left; step 4 begins again at the rank's own.
    assert right == [[chunk[(r - k) % 4] for k in range(1, 7)] for r in range(4)]
    assert left == [[chunk[(r + k) % 4] for k in range(1, 7)] for r in range(4)]
    assert sorted(s.start_s for s in run.sends) == sorted([0, 1, 2, 3, 4, 5] * 8)


@pytest.mark.parametrize("p", [2, 3, 4, 7, 64])
@pytest.mark.parametrize("num_bytes", [1024, 10**8])
def test_takes_about_as_long_as_a_ring_where_both_ways_share_a_port(p, num_bytes):
    # Less, because one half is folded while the other travels; on a ring of three a little more, because
    # with so few neighbours the two ways sometimes wait for the same port.
    measured = seconds("all_reduce", "bidirectional_ring", p, num_bytes)
    assert 0.85 < measured / predicted("all_reduce", "bidirectional_ring", p, num_bytes) < 1.06


@pytest.mark.parametrize(("cards", "share"), [(1, 1), (4, 1 / 2)])
def test_between_nodes_each_way_takes_a_card_of_its_own(cards, share):
    cluster = preset("h100").with_(devices_per_node=4, nics_per_node=cards, between=Link(0, 1e9), inside=Link(0, 1e15))
    n = 8_000_000
    measured = seconds("all_reduce", "bidirectional_ring", 8, n, cluster=cluster)
    assert measured == pytest.approx(2 * 7 * share * n / 8 / 1e9, rel=0.01)
    said = formula("all_reduce", "bidirectional_ring", ranks=8, num_bytes=n, ranks_per_node=4).on(cluster, 8)
    assert said == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(("p", "per_node"), [(9, 4), (9, 8), (4, 1)])
def test_a_rank_alone_on_its_node_sends_both_ways_by_one_card(p, per_node):
    cluster = preset("h100").with_(devices_per_node=per_node, nics_per_node=per_node, between=Link(0, 1e9))
    n = 9_000_000
    said = formula("all_reduce", "bidirectional_ring", ranks=p, num_bytes=n, ranks_per_node=per_node).on(cluster, p)
    assert said == pytest.approx(seconds("all_reduce", "bidirectional_ring", p, n, cluster=cluster), rel=0.05)
