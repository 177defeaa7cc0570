"""Several rings at once: which way each goes, counts, steps, and that all network cards are busy."""

import numpy as np
import pytest
from anatomy import RANKS, UNIT, dissect, hold, seconds

from simdist.bench.measure import bus_bytes_per_s
from simdist.cluster import Link, preset
from simdist.collectives import formula


@pytest.mark.parametrize("p", RANKS)
def test_on_one_node_it_is_the_ring(p):
    hold("all_reduce", "multi_ring", p)


@pytest.mark.parametrize(("p", "k"), [(4, 2), (5, 2), (6, 3), (7, 3), (8, 4), (9, 4)])
def test_results_and_counts_on_nodes(p, k):
    """Not the seconds of UNIT, whose ranks of a node share one card: there k messages of a step wait for each other."""
    hold("all_reduce", "multi_ring", p, cluster=UNIT.with_(devices_per_node=k), ranks_per_node=k, early=None)


def test_every_rank_sends_one_part_to_another_node():
    run = dissect("all_reduce", "multi_ring", [np.ones(32, np.int8)] * 8, cluster=UNIT.with_(devices_per_node=4))
    for rank in range(8):
        peers = [s.peer for s in run.sends if s.rank == rank]
        node, place = divmod(rank, 4)
        ahead = 4 * node + (place + 1) % 4
        across = 4 * (1 - node) + (place + 1) % 4
        assert sorted(peers) == sorted([ahead] * 3 * 14 + [across] * 14)


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(("name", "ranks"), [("h100", 16), ("h100", 32), ("v100", 32), ("a100", 24)])
def test_its_bandwidth_is_that_of_all_network_cards(name, ranks):
    """What NCCL's rings reach on three nodes and more."""
    cluster, num_bytes = preset(name), 1 << 30
    took_s = seconds("all_reduce", "multi_ring", ranks, num_bytes, cluster=cluster)
    cards = cluster.nics_per_node * cluster.between.bytes_per_s
    assert 0.88 * cards < bus_bytes_per_s("all_reduce", ranks, num_bytes, took_s) <= cards
    own = formula("all_reduce", "multi_ring", ranks=ranks, num_bytes=num_bytes, ranks_per_node=cluster.devices_per_node)
    assert 0.85 * own.on(cluster, ranks) < took_s < 1.01 * own.on(cluster, ranks)


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("inside", [12.5e9, 50e9, 400e9])
def test_of_links_inside_and_between_the_slower_ones_count(inside):
    """Seven parts of eight stay inside: links that are not seven times as fast as a card are what it waits for."""
    cluster = preset("h100").with_(inside=Link(3e-6, inside), between=Link(5e-6, 12.5e9))
    num_bytes, ranks = 1 << 30, 32
    own = formula("all_reduce", "multi_ring", ranks=ranks, num_bytes=num_bytes, ranks_per_node=8)
    assert own.bytes == formula("all_reduce", "ring", ranks=ranks, num_bytes=num_bytes).bytes
    took_s = seconds("all_reduce", "multi_ring", ranks, num_bytes, cluster=cluster)
    assert own.on(cluster, ranks) == pytest.approx(took_s, rel=0.1)
    assert own.on(cluster, ranks) == pytest.approx(own.bytes * max(7 / inside, 1 / 12.5e9) / 8, rel=0.1)


@pytest.mark.parametrize("ranks", [12, 17, 20])
def test_several_rings_share_a_card_of_a_node_with_fewer_ranks(ranks):
    cluster, num_bytes = preset("h100"), 1 << 28
    took_s = seconds("all_reduce", "multi_ring", ranks, num_bytes, cluster=cluster)
    own = formula("all_reduce", "multi_ring", ranks=ranks, num_bytes=num_bytes, ranks_per_node=8)
    assert took_s <= own.on(cluster, ranks) < 1.2 * took_s


@pytest.mark.parametrize(
    ("name", "k", "ranks"), [("v100", 8, 9), ("v100", 8, 33), ("this-machine", 4, 5), ("h100", 5, 8)]
)
def test_rings_that_share_a_card_are_counted_once(name, k, ranks):
    """Those of a full node shared its cards with those of the smallest: up to four times too long."""
    cluster, num_bytes = preset(name).with_(devices_per_node=k), 48_000_000
    took_s = seconds("all_reduce", "multi_ring", ranks, num_bytes, cluster=cluster)
    own = formula("all_reduce", "multi_ring", ranks=ranks, num_bytes=num_bytes, ranks_per_node=k)
    assert took_s < own.on(cluster, ranks) < 1.2 * took_s
