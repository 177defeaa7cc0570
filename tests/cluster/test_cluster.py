import pytest

from simdist.cluster import Cluster, Device, Link
from simdist.errors import ArgumentError

INSIDE, BETWEEN = Link(1.0, 10.0), Link(5.0, 2.0)


def cluster(**changes):
    """Nodes of four toy devices."""
    toy = Device("toy", 100.0, 30.0, 1e9)
    return Cluster("toy", toy, INSIDE, BETWEEN, devices_per_node=4).with_(**changes)


def test_ranks_fill_the_nodes_in_order():
    assert [cluster().node_of(rank) for rank in range(9)] == [0, 0, 0, 0, 1, 1, 1, 1, 2]


def test_a_job_crosses_the_slow_link_only_where_it_leaves_a_node():
    assert [cluster().link(ranks) for ranks in (1, 4, 5)] == [INSIDE, INSIDE, BETWEEN]


def test_ranks_of_a_node_that_send_at_once_share_its_network_cards():
    shares = [cluster(nics_per_node=2).link_between(senders) for senders in (1, 2, 3, 4)]
    assert shares == [Link(5.0, bytes_per_s) for bytes_per_s in (2.0, 2.0, 1.0, 1.0)]


def test_a_slow_rank_computes_by_its_factor_longer():
    uneven = cluster(slow={2: 3.0})
    assert [uneven.seconds(rank, 100, 0) for rank in (1, 2)] == [1.0, 3.0]


def test_with_changes_a_copy():
    first = cluster()
    assert first.with_(jitter=0.5).jitter == 0.5
    assert first.jitter == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices_per_node": 0}, "devices_per_node is 0; needs at least 1"),
        ({"nics_per_node": 0}, "nics_per_node is 0; needs at least 1"),
        ({"devices_per_node": 16 / 2}, "devices_per_node is 8.0; needs a whole number"),
        ({"nics_per_node": 2.5}, "nics_per_node is 2.5; needs a whole number"),
        ({"seed": 1.5}, "seed is 1.5; needs a whole number"),
        ({"seed": -1}, r"seed is -1; needs at least 0"),
        ({"seed": 1 << 32}, r"seed is 4294967296; needs less than 2\*\*32"),
        ({"eager_bytes": -1}, "eager_bytes is -1; needs at least 0"),
        ({"jitter": -0.1}, "jitter is -0.1; needs at least 0"),
        ({"jitter": float("nan")}, "jitter is nan; needs at least 0"),
        ({"slow": {-1: 2.0}}, "slow is {-1: 2.0}; needs a factor by rank"),
        ({"slow": {3: 0.0}}, "rank 3 cannot be slow by the factor 0.0"),
        ({"slow": {3: "2"}}, "rank 3 cannot be slow by the factor '2'"),
        ({"jitter": "much"}, "jitter is 'much'; needs at least 0"),
        ({"slow": 2.0}, "slow is 2.0; needs a factor by rank"),
        ({"device": "h100"}, "device is 'h100'; needs a Device"),
        ({"tuned": "t.json"}, "tuned is 't.json'; needs a Tuned"),
        ({"between": 25e9}, r"between is 25000000000\.0; needs a Link"),
        ({"host": None}, "host is None; needs a Host"),
        ({"slow": {"3": 2.0}}, "needs a factor by rank, such as {2: 4.0}"),
    ],
)
def test_refuses_what_no_machine_is(changes, message):
    with pytest.raises(ArgumentError, match=message):
        cluster(**changes)
