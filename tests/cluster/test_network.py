"""A message of 8 bytes takes 1 + 8/2 = 5 s inside a node of this cluster and 3 + 8/1 = 11 s between two."""

from collections import defaultdict
from heapq import heappop, heappush
from itertools import chain, count, islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simdist.cluster import Cluster, Device, Link, Network
from simdist.cluster.network import Port, _mixed

TOY = Cluster("toy", Device("toy", 1.0, 4.0, 1e9), Link(1.0, 2.0), Link(3.0, 1.0), devices_per_node=2)


def test_alone_it_takes_alpha_and_n_beta():
    assert Network(TOY, 4).path(0, 1).carry(8, ready_s=10.0) == (14.0, 15.0)
    assert Network(TOY, 4).path(0, 2).carry(8, ready_s=10.0) == (18.0, 21.0)
    assert Network(TOY, 4).path(0, 1).carry(0, ready_s=10.0) == (10.0, 11.0)


def test_a_message_to_oneself_is_a_copy_that_reads_and_writes():
    assert Network(TOY, 2).path(1, 1).carry(8, ready_s=1.0) == (5.0, 5.0)


def test_a_port_out_serves_one_message_after_the_other():
    network = Network(TOY.with_(devices_per_node=4), 4)
    assert network.path(0, 1).carry(8, ready_s=0.0) == (4.0, 5.0)
    assert network.path(0, 2).carry(8, ready_s=0.0) == (8.0, 9.0)
    assert network.path(0, 3).carry(8, ready_s=20.0) == (24.0, 25.0)


def test_a_port_in_does_too():
    network = Network(TOY.with_(devices_per_node=4), 4)
    assert [network.path(src, 3).carry(8, ready_s=0.0)[1] for src in range(3)] == [5.0, 9.0, 13.0]


def test_the_broadcast_of_logps_paper():
    """With L = 6, o = 2 and g = 4 the last of eight has it after 24, if all that have it send it on at once."""
    link, has = Link(6.0, 1.0), [(0.0, 0)]  # 4 bytes arrive after L + 2o = 10 and keep the port for g = 4
    network, arrived = Network(TOY.with_(inside=link, devices_per_node=8), 8), []
    for dst in range(1, 8):
        free_s, src = heappop(has)
        left_s, came_s = network.path(src, dst).carry(4, ready_s=free_s)
        heappush(has, (left_s, src))
        heappush(has, (came_s, dst))
        arrived.append(came_s)
    assert sorted(arrived) == [10, 14, 18, 20, 22, 24, 24]


def test_the_two_directions_of_a_port_are_apart():
    network = Network(TOY, 2)
    assert network.path(0, 1).carry(8, ready_s=0.0) == network.path(1, 0).carry(8, ready_s=0.0) == (4.0, 5.0)


def test_ranks_of_a_node_share_its_nic_or_have_their_own():
    shared, own = Network(TOY, 4), Network(TOY.with_(nics_per_node=2), 4)
    assert [shared.path(rank, rank + 2).carry(8, ready_s=0.0)[1] for rank in (0, 1)] == [11.0, 19.0]
    assert [own.path(rank, rank + 2).carry(8, ready_s=0.0)[1] for rank in (0, 1)] == [11.0, 11.0]


def test_what_two_nodes_send_to_a_third_shares_its_nic_but_not_with_what_that_sends():
    network = Network(TOY, 6)
    assert [network.path(src, dst).carry(8, ready_s=0.0)[1] for src, dst in ((0, 4), (2, 5), (4, 0))] == [11, 19, 11]


def test_a_port_inside_is_free_while_the_nic_is_busy():
    network = Network(TOY, 4)
    network.path(0, 2).carry(8, ready_s=0.0)
    assert network.path(0, 1).carry(8, ready_s=0.0) == (4.0, 5.0)


def test_a_message_that_waits_to_leave_leaves_a_gap_for_others():
    """Rank 0 sends 8 bytes to 1, then to 2, whose port is idle until 5; rank 1 sends 4 to 2, and 3 then 8."""
    network = Network(TOY.with_(devices_per_node=4), 4)
    assert [network.path(0, dst).carry(8, ready_s=0.0)[1] for dst in (1, 2)] == [5.0, 9.0]
    assert network.path(1, 2).carry(4, ready_s=0.0) == (2.0, 3.0)
    assert network.path(3, 2).carry(8, ready_s=0.0) == (4.0, 11.0), "2 s before the long one, 2 s after it"
    assert network.path(1, 2).carry(8, ready_s=0.0) == (6.0, 15.0)


@given(
    messages=st.lists(st.tuples(*[st.integers(0, 3)] * 2, st.integers(0, 9), st.integers(0, 3)), max_size=30),
    devices_per_node=st.sampled_from([2, 4]),
)
@example(messages=[(0, 1, 2, 0), (0, 2, 2, 0), (1, 2, 0, 2)], devices_per_node=4)  # no bytes, where a gap ends
def test_a_port_in_receives_in_the_first_seconds_that_are_free(messages, devices_per_node):
    """Against a list of the seconds in which each port is taken. All of it at bytes a second and whole seconds."""
    second = Link(1.0, 1.0)
    cluster = TOY.with_(inside=second, between=second, devices_per_node=devices_per_node)
    network, now = Network(cluster, 4), 0
    paths = {(src, dst): network.path(src, dst) for src in range(4) for dst in range(4)}
    leaves, taken = defaultdict(int), defaultdict(set)
    for src, dst, num_bytes, later in messages:
        if src == dst:
            continue
        now += later
        nodes = src // devices_per_node, dst // devices_per_node
        out, into = (src, dst) if nodes[0] == nodes[1] else (f"card {node}" for node in nodes)
        start = max(leaves[out], now)
        leaves[out] = start + num_bytes
        free = (second for second in count(start + 1) if second not in taken[into])
        seconds = list(islice(free, num_bytes))
        arrival = seconds[-1] + 1 if seconds else next(free)  # what has no bytes comes between others
        taken[into].update(seconds)
        assert paths[src, dst].carry(num_bytes, float(now)) == (start + num_bytes, arrival)


@pytest.mark.parametrize("ready_s", [7.7, 33333.3])
def test_gaps_of_the_length_of_a_message_hold_one_in_spite_of_rounding(ready_s):
    """A tenth of a second is no sum of powers of two; the k-th messages of all ranks are for different ones."""
    network = Network(TOY.with_(inside=Link(0.1, 80.0), devices_per_node=16), 16)
    arrivals = [[network.path(src, (src + k) % 16).carry(8, ready_s)[1] for k in range(1, 16)] for src in range(16)]
    expected_s = [ready_s + 0.1 + 0.1 * k for k in range(1, 16)]
    assert arrivals == [pytest.approx(expected_s, rel=1e-12)] * 16


def test_gaps_are_kept_while_a_message_can_use_them_and_no_longer():
    """At 2n the port is booked from 2n + 3 to 2n + 4."""
    port = Port()
    for n in range(100):
        assert port.book(2.0 * n + 3.0, busy_s=1.0, now_s=2.0 * n) == 2.0 * n + 4.0
    assert port.gaps == [(198.0, 199.0), (200.0, 201.0)]


def test_no_message_overtakes_another_of_its_path():
    network = Network(TOY.with_(jitter=9.0, seed=3, devices_per_node=4), 4)
    paths = [network.path(src, 0) for src in (1, 2, 3)]
    for path in paths:
        arrivals = [path.carry(1, ready_s=0.1 * i)[1] for i in range(50)]
        assert arrivals == sorted(arrivals)


def latencies(seed, jitter, count=200, src=0, dst=1):
    """The latencies of messages without bytes, one after the other."""
    network = Network(TOY.with_(jitter=jitter, seed=seed), 4)
    return [network.path(src, dst).carry(0, ready_s=100.0 * i)[1] - 100.0 * i for i in range(count)]


def test_jitter_stretches_latency_within_its_bound_and_by_its_seed():
    values = latencies(seed=1, jitter=0.5)
    assert min(values) >= 1.0
    assert max(values) <= 1.5
    assert sum(values) / len(values) == pytest.approx(1.25, abs=0.05)
    assert values == latencies(seed=1, jitter=0.5)
    assert values != latencies(seed=2, jitter=0.5)
    assert not set(values) & set(latencies(seed=1, jitter=0.5, src=1, dst=0)), "each sender's are its own"
    others = [latencies(seed=1 + (1 << k), jitter=0.5) for k in range(1, 32)]
    assert not set(latencies(seed=1, jitter=0.5, src=1, dst=0)) & set(chain(*others)), "and no other seed has them"
    assert set(latencies(seed=1, jitter=0.0)) == {1.0}
    assert latencies(seed=1, jitter=0.5, dst=2) == pytest.approx([3 * value for value in values]), "between nodes too"


def test_the_generator_of_jitter_is_splitmix64():
    """The first three numbers of the published one with the seed 0."""
    assert [_mixed(k) for k in (1, 2, 3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
