from math import nan

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import Link, preset
from simdist.errors import ArgumentError


def test_a_message_takes_alpha_and_n_beta():
    assert Link(latency_s=2.0, bytes_per_s=4.0).seconds(8) == 4.0
    assert Link(latency_s=2.0, bytes_per_s=4.0).seconds(0) == 2.0


@pytest.mark.parametrize(("microseconds", "gb_per_s", "half"), [(10, 16, 160e3), (3, 450, 1.35e6)])
def test_messages_of_half_bytes_reach_half_of_the_bandwidth(microseconds, gb_per_s, half):
    link = Link(microseconds * 1e-6, gb_per_s * 1e9)
    assert link.half_bytes == pytest.approx(half)
    assert Link(0.0, float("inf")).half_bytes == 0
    for times, left in ((1, 1 / 2), (3, 3 / 4), (9, 0.9)):
        n = times * link.half_bytes
        assert n / link.seconds(n) == pytest.approx(left * link.bytes_per_s)


@pytest.mark.parametrize(
    ("lanes", "gigabits", "data", "gb_per_s"),
    [
        (16, 8, 128 / 130, 15.75),  # PCIe 3 to 6
        (16, 16, 128 / 130, 31.5),
        (16, 32, 128 / 130, 63.0),
        (16, 64, 242 / 256, 121.0),
        (4, 25, 1, 12.5),  # InfiniBand EDR to XDR
        (4, 50, 1, 25),
        (4, 100, 1, 50),
        (4, 200, 1, 100),
    ],
)
def test_rates_of_buses_and_networks(lanes, gigabits, data, gb_per_s):
    assert Link.of_lanes(0.0, lanes, gigabits * 1e9, data).bytes_per_s == pytest.approx(gb_per_s * 1e9, rel=5e-4)


@pytest.mark.parametrize(
    ("name", "links", "lanes", "gigabits"),
    [("p100", 4, 8, 20), ("v100", 6, 8, 25), ("a100", 12, 4, 50), ("h100", 18, 2, 100), ("b200", 18, 2, 200)],
)
def test_five_generations_of_nvlink(name, links, lanes, gigabits):
    inside = preset(name).inside
    assert Link.of_lanes(inside.latency_s, links * lanes, gigabits * 1e9) == inside
    with pytest.raises(ArgumentError, match="bytes_per_s is 0"):
        Link.of_lanes(1e-6, 0, 25e9)


@pytest.mark.parametrize(
    ("senders", "wires", "share"),
    [(1, 1, 1), (8, 1, 8), (8, 4, 2), (9, 4, 3), (2, 4, 1), (0, 4, 1), (8, float("inf"), 1)],
)
def test_those_that_send_at_once_share_the_wires(senders, wires, share):
    """The busiest wire has ⌈senders / wires⌉ of them."""
    assert Link(2.0, 24.0).among(senders, wires) == Link(2.0, 24.0 / share)


@pytest.mark.parametrize(
    ("latency_s", "bytes_per_s", "message"),
    [(-1.0, 1.0, "latency_s is -1.0; needs at least 0"), (nan, 1.0, "latency_s is nan"), (0.0, 0, "bytes_per_s is 0;")],
)
def test_refuses_what_no_wire_is(latency_s, bytes_per_s, message):
    with pytest.raises(ArgumentError, match=message):
        Link(latency_s, bytes_per_s)


def test_the_best_broadcast_in_logp():
    """To 8 processors with L = 6, o = 2, g = 4: the root sends to four, and the first two of these send, too."""
    latency, overhead, gap = 6, 2, 4
    parents = {1: 0, 2: 0, 3: 0, 4: 0, 5: 1, 6: 1, 7: 2}

    def program(comm):
        x = np.zeros(1, np.uint8)
        if comm.rank:
            comm.recv(x, parents[comm.rank])
        got = comm.clock()
        for child in (c for c, parent in parents.items() if parent == comm.rank):
            comm.send(x, child)
        return got

    machine = preset("this-machine").with_(name="logp", inside=Link(latency + 2 * overhead - gap, 1 / gap))
    assert sd.run(program, 8, cluster=machine).results == [0, 10, 14, 18, 22, 20, 24, 24]
