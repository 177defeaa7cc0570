"""Messages of 8 bytes take a wire for 8 s and arrive 3 s after that."""

from itertools import permutations

import numpy as np
import pytest

import simdist as sd
from simdist.arrays import phantom
from simdist.cluster import Cluster, Device, Link, Network, Torus, as_toml, find_cluster, torus, torus_route
from simdist.collectives import all_reduce, formula
from simdist.errors import ArgumentError
from simdist.planning import Workbench

SIDES = [(1,), (2,), (5,), (8,), (2, 3), (4, 4), (3, 5), (2, 2, 2), (3, 4, 5)]
TOY = Cluster("toy", Device("toy", 1.0, 4.0, 1e9), Link(1.0, 2.0), Link(3.0, 1.0), devices_per_node=1)


def at(host, sides):
    return np.array(np.unravel_index(host, sides))


@pytest.mark.parametrize("sides", SIDES, ids=str)
def test_routes_are_the_shortest_ways_over_the_cables_of_the_torus(sides):
    route, size = torus_route(*sides), torus(*sides)
    used, most = set(), 0
    for src, dst in permutations(range(size.hosts), 2):
        wires = route(src, dst)
        assert [wires[0][0], *(there for _, there in wires)] == [*(here for here, _ in wires), dst]
        assert wires[0][0] == src
        apart = np.abs(at(src, sides) - at(dst, sides))
        assert len(wires) == sum(np.minimum(apart, np.array(sides) - apart))
        most = max(most, len(wires))
        used |= set(wires)
    assert len(used) == 2 * size.cables
    assert most == size.hops


@pytest.mark.parametrize("sides", [(8,), (4, 4), (4, 6)], ids=str)
def test_half_way_round_both_directions_carry_as_much(sides):
    route, load = torus_route(*sides), {}
    for src in range(torus(*sides).hosts):
        dst = np.ravel_multi_index((at(src, sides) + np.array(sides) // 2) % sides, sides)
        for wire in route(src, int(dst)):
            load[wire] = load.get(wire, 0) + 1
    assert max(load.values()) == max(sides) // 4 + 1 * (max(sides) % 4 > 0)


def test_alone_a_message_takes_alpha_and_n_beta_on_any_number_of_wires():
    network = Network(TOY.with_(route=torus_route(8)), 8)
    assert network.path(0, 1).carry(8, ready_s=10.0) == (18.0, 21.0)
    assert Network(TOY.with_(route=torus_route(8)), 8).path(0, 4).carry(8, ready_s=10.0) == (18.0, 21.0)
    assert network.path(3, 3).carry(8, ready_s=1.0) == (5.0, 5.0)  # a copy, which passes no wire


@pytest.mark.parametrize("distance", [1, 2, 3])
def test_a_wire_carries_one_message_at_a_time(distance):
    """If all hosts of a ring send as far, as many messages share each wire: the last arrives after their bytes."""
    network = Network(TOY.with_(route=torus_route(8)), 8)
    arrived = [network.path(r, (r + distance) % 8).carry(8, ready_s=0.0)[1] for r in range(8)]
    assert max(arrived) == 3 + distance * 8


def test_a_host_sends_along_all_sides_at_once():
    network = Network(TOY.with_(route=torus_route(3, 3)), 9)
    assert [network.path(0, dst).carry(8, ready_s=0.0)[1] for dst in (1, 2, 3, 6)] == [11.0] * 4


def test_devices_of_a_node_reach_each_other_without_wires():
    two = TOY.with_(devices_per_node=2, route=lambda src, dst: [("up", src // 2), ("down", dst // 2)])
    assert Network(two, 4).path(0, 1).carry(8, ready_s=0.0) == (4.0, 5.0)
    network = Network(two, 4)  # and share the wires of their node
    assert [network.path(src, src + 2).carry(8, ready_s=0.0)[1] for src in (0, 1)] == [11.0, 19.0]


def test_messages_of_a_path_keep_their_order_under_jitter():
    path = Network(TOY.with_(route=torus_route(4), jitter=9.0), 4).path(0, 2)
    arrived = [path.carry(num_bytes, ready_s=0.0)[1] for num_bytes in (1, 0, 2, 0, 0, 1) * 5]
    assert arrived == sorted(arrived)


def seconds(algorithm, ranks, route, items):
    link = Link(1e-6, 50e9)
    cluster = TOY.with_(device=Device("toy", 1e18, 1e18, 1e9), inside=link, between=link, route=route)
    return sd.run(
        lambda comm: all_reduce(phantom((items,), np.float32), comm, algorithm=algorithm), ranks, cluster=cluster
    ).elapsed_s


def test_what_an_algorithm_pays_for_a_ring_of_links():
    """A ring's messages share no wire. Recursive halving's pairs are 8, 4, 2, 1 apart and exchange n/2, n/4, n/8, n/16.

    So a wire carries 4, 4, 2 and 1 of them, and all of it twice: 2 n (2 + 1 + 1/4 + 1/16) bytes, where a network
    without routes takes 2 n 15/16.
    """
    items, n_beta_s = 1 << 24, (1 << 26) / 50e9
    assert seconds("ring", 16, torus_route(16), items) == pytest.approx(seconds("ring", 16, None, items), rel=1e-9)
    assert seconds("rabenseifner", 16, torus_route(16), items) == pytest.approx(2 * 53 / 16 * n_beta_s, rel=0.02)
    assert seconds("rabenseifner", 16, None, items) == pytest.approx(2 * 15 / 16 * n_beta_s, rel=0.02)


@pytest.mark.parametrize("p", [4, 8])
@pytest.mark.parametrize("items", [1 << 10, 1 << 20])
def test_the_wires_of_a_crossbar_are_its_ports(p, items):
    """One wire out of each host and one into it: the network without routes."""
    crossbar = seconds("recursive_doubling", p, lambda src, dst: [("out", src), ("in", dst)], items)
    assert crossbar == pytest.approx(seconds("recursive_doubling", p, None, items), rel=1e-9)
    assert formula("all_reduce", "recursive_doubling", ranks=p, num_bytes=4 * items).at(1e-6, 1 / 50e9, 0) == (
        pytest.approx(crossbar, rel=0.02)
    )


def test_what_is_no_route_is_refused():
    with pytest.raises(ArgumentError, match="sides is 0"):
        torus_route()
    with pytest.raises(ArgumentError, match="side is 0"):
        torus_route(4, 0)
    with pytest.raises(ArgumentError, match=r"rank 5 on a torus of 2 x 2 hosts, 0 to 3"):
        torus_route(2, 2)(5, 0)
    with pytest.raises(ArgumentError, match=r"the route is \(4, 4\)"):
        TOY.with_(route=(4, 4))
    with pytest.raises(ArgumentError, match=r"this one cannot be: too many"):
        TOY.with_(route=lambda src: [src])
    with pytest.raises(ArgumentError, match=r"from rank 0 to 1 is \[\]; needs a wire"):
        Network(TOY.with_(route=lambda src, dst: []), 2).path(0, 1)
    with pytest.raises(ArgumentError, match="toy has routes, which plans do not know"):
        Workbench(TOY.with_(route=torus_route(4)), 4)


def test_a_torus_is_written_to_a_clusters_file_and_read_from_it(tmp_path):
    file = tmp_path / "torus.toml"
    file.write_text(as_toml(TOY.with_(route=torus_route(np.int64(2), 4))))
    assert find_cluster(str(file)) == TOY.with_(route=Torus((2, 4)))
    file.write_text('like = "h100"\ndevices_per_node = 1\ntorus = [2, 4]')
    assert find_cluster(str(file)).route(0, 7) == [(0, 3), (3, 7)]


def test_a_route_of_ones_own_is_not_stored_and_the_file_says_so(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(as_toml(TOY.with_(route=lambda src, dst: [src])))
    assert "# its route, a function of a program, is not stored\n" in file.read_text()
    assert find_cluster(str(file)) == TOY


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("torus = 8", "torus in .* is 8; needs a list"),
        ("torus = []", r"torus in .* is \[\]: sides is 0; needs at least 1"),
        ("torus = [0, 8]", r"torus in .* is \[0, 8\]: side is 0; needs at least 1"),
        ("torus = [2.5]", r"torus in .* is \[2.5\]: side is 2.5; needs a whole number"),
        ('torus = ["8"]', r"torus in .* is \['8'\]: side is '8'; needs a whole number"),
        ("torus = [8]\ndevices_per_node = 2", "devices_per_node is 2; on a torus each host has one device"),
    ],
)
def test_refuses_a_torus_that_there_cannot_be(line, fault, tmp_path):
    file = tmp_path / "torus.toml"
    alone = "" if "devices" in line else "devices_per_node = 1\n"
    file.write_text(f'like = "tpu-v4"\n{alone}{line}')
    with pytest.raises(ArgumentError, match=fault):
        find_cluster(str(file))
