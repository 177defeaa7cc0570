"""Networks of the papers, and the same built cable by cable."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest

from simdist.asynchronous import graphs
from simdist.cluster import dragonfly, fat_tree, hyperx, preset, slim_fly, torus
from simdist.errors import ArgumentError


@pytest.mark.parametrize(
    ("ports", "levels", "hosts", "switches"),
    [
        (48, 3, 27_648, 2_880),  # of Al-Fares et al.
        (4, 3, 16, 20),  # its figure 3
        (8, 3, 128, 80),
        (64, 2, 2_048, 96),  # leaves and spines of 64 ports
        (64, 3, 65_536, 5_120),
        (40, 1, 40, 1),
    ],
)
def test_fat_trees_have_the_hosts_and_switches_of_the_paper(ports, levels, hosts, switches):
    found = fat_tree(ports, levels)
    assert (found.hosts, found.switches) == (hosts, switches)
    assert found.bisection == hosts // 2
    assert 2 * found.cables + hosts == ports * switches  # no port is left


@pytest.mark.parametrize(
    ("levels", "hosts", "per_level"),
    [(2, 256, (8, 4)), (2, 1024, (32, 16)), (2, 2048, (64, 32)), (3, 4096, (128, 128, 64))],
)
def test_pods_of_h100s_have_their_switches(levels, hosts, per_level):
    """DGX SuperPODs on switches of 64 ports, in How to Scale Your Model, chapter on GPUs: leaves, spines and cores."""
    assert fat_tree(64, levels, hosts=hosts) == (
        hosts,
        sum(per_level),
        (levels - 1) * hosts,
        hosts // 2,
        2 * (levels - 1),
    )


def test_a_few_hosts_of_a_tree():
    assert fat_tree(64, 2, hosts=33) == (33, 2 + 1, 64, 32, 2)
    assert fat_tree(64, 2, oversubscription=3, hosts=96) == (96, 2 + 1, 32, 16, 2)
    assert fat_tree(8, 3, oversubscription=3, hosts=18) == (18, 3 + 2 + 1, 12, 3, 4)  # 6 cables to 4 ports each, and 8
    assert fat_tree(8, 1, hosts=5) == (5, 1, 0, 2, 0)
    for ports, levels, ratio in ((4, 3, 1), (8, 2, 3), (6, 4, 2)):
        full = fat_tree(ports, levels, ratio)
        assert fat_tree(ports, levels, ratio, hosts=full.hosts) == full


def tapered(ports, levels, up):
    """The number of a fat tree's switches, from the leaves on, and its cables, if leaves have so many ports up."""
    if levels == 1:
        return 1, []
    half = ports // 2
    leaves, cables = 2 * half ** (levels - 1), []
    count = leaves
    for _ in range(up):  # trees of whose ports down each has as many as there are leaves
        switches, inside = tapered(ports, levels - 1, half)
        each = ports if levels == 2 else half
        cables += [(leaf, count + leaf // each) for leaf in range(leaves)]
        cables += [(i + count, j + count) for i, j in inside]
        count += switches
    return count, cables


@pytest.mark.parametrize(("ports", "ratio"), [(4, 1), (4, 3), (6, 1), (6, 2), (8, 3), (12, 2)])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_tapered_fat_trees_cable_by_cable(ports, ratio, levels):
    switches, cables = tapered(ports, levels, ports // (ratio + 1))
    found = fat_tree(ports, levels, oversubscription=ratio)
    assert (found.switches, found.cables) == (switches, len(cables))
    used = Counter(i for cable in cables for i in cable)
    leaves = 1 if levels == 1 else 2 * (ports // 2) ** (levels - 1)
    assert found.hosts == sum(ports - used[i] for i in range(leaves))
    assert all(used[i] == ports for i in range(leaves, switches))  # no port is left
    if levels > 1:
        assert found.hosts / 2 / found.bisection == pytest.approx(ratio)


def test_leaves_and_spines_with_three_times_as_many_ports_down():
    assert fat_tree(64, 2, oversubscription=3) == (3072, 80, 1024, 512, 2)
    assert fat_tree(36, 2, oversubscription=2).hosts == 36 * 24


@pytest.mark.parametrize(
    ("hosts", "switches", "links", "ports", "whole"),
    [
        (2, 4, 2, 7, 72),  # figure 5 of Kim et al.
        (16, 32, 16, 63, 262_656),  # "over 256K", from switches of 64 ports
        (16, 32, 17, 64, 279_040),  # Slingshot's 545 groups of 512
    ],
)
def test_dragonflies_have_the_hosts_of_the_paper(hosts, switches, links, ports, whole):
    found = dragonfly(hosts, switches, links)
    assert found.hosts == whole
    assert 2 * found.cables + whole == ports * found.switches  # no port is left
    assert found.hops == 3


def groups_of(switches, links):
    """A dragonfly's graph of switches, where group i's cable to group j is at its next free switch."""
    count = switches * links + 1
    free = [[g * switches + s for s in range(switches) for _ in range(links)] for g in range(count)]
    edges = [(g * switches + i, g * switches + j) for g in range(count) for i, j in combinations(range(switches), 2)]
    edges += [(free[g].pop(), free[h].pop()) for g, h in combinations(range(count), 2)]
    return graphs.Graph.of(count * switches, edges)


@pytest.mark.parametrize(("switches", "links"), [(1, 2), (2, 1), (3, 2), (4, 2)])
def test_a_dragonfly_built_cable_by_cable_is_as_wide(switches, links):
    found, graph = dragonfly(1, switches, links), groups_of(switches, links)
    assert (found.switches, found.cables, found.hops) == (graph.size, len(graph.edges), graph.diameter)


@pytest.mark.parametrize(
    ("switches", "links", "groups"), [(4, 2, 5), (4, 2, 3), (6, 2, 4), (2, 2, 2), (1, 6, 4), (3, 2, 1), (1, 2, 1)]
)
def test_fewer_groups_have_several_cables_between_two(switches, links, groups):
    """Switch i of a group has its link k to the group that is next after those of link k - 1 and switch i - 1."""
    found, ends = dragonfly(2, switches, links, groups), Counter()
    for g in range(groups if groups > 1 else 0):
        for i, k in product(range(switches), range(links)):
            ends[g, (g + 1 + (i * links + k) % (groups - 1)) % groups] += 1
    cables = {pair: count for pair, count in ends.items() if pair[0] < pair[1]}
    assert all(count == ends[h, g] for (g, h), count in ends.items())
    assert found.cables == sum(cables.values()) + groups * switches * (switches - 1) // 2
    if groups > 1:
        assert found.bisection == sum(count for (g, h), count in cables.items() if g < groups // 2 <= h)
    assert (found.hosts, found.switches) == (2 * groups * switches, groups * switches)


def test_hops_of_dragonflies_with_few_groups():
    """3 if a switch has to go by another to some group; 1 if it is joined to every switch; 0 to itself."""
    assert [dragonfly(1, 4, 2, groups).hops for groups in (9, 4, 3, 2, 1)] == [3, 3, 2, 2, 1]
    assert [dragonfly(1, 2, 2, 2).hops, dragonfly(1, 1, 3).hops, dragonfly(1, 1, 3, 1).hops] == [1, 1, 0]


def test_networks_of_deepseeks_comparison():
    """arXiv 2505.09343, table 3: endpoints, switches and links of fat trees of two and three levels, a Slim Fly, and a
    dragonfly; its multi-plane fat tree is eight of the first.
    """
    made = [fat_tree(64, 2), fat_tree(64, 3), slim_fly(28), dragonfly(16, 32, 16, groups=511)]
    assert [found[:3] for found in made] == [
        (2048, 96, 2048),
        (65_536, 5120, 131_072),
        (32_928, 1568, 32_928),
        (261_632, 16_352, 384_272),
    ]


def slim(q, root):
    """A Slim Fly's graph of switches for a prime q, by a root of all numbers below it, as in Besta and Hoefler's II-B.

    Switch (0, x, y) is x q + y, and (1, m, c) q² more than m q + c.
    """
    powers = [pow(root, i, q) for i in range(q - 1)]
    if q % 4 == 1:
        steps = powers[::2], powers[1::2]
    else:
        half = (q + 1) // 2
        steps = powers[:half:2] + powers[half - 1 :: 2], powers[1:half:2] + powers[half::2]
    edges = {
        (kind * q * q + x * q + y, kind * q * q + x * q + (y + step) % q)
        for kind, x, y in product(range(2), range(q), range(q))
        for step in steps[kind]
    }
    edges |= {(x * q + (m * x + c) % q, q * q + m * q + c) for x, m, c in product(range(q), repeat=3)}
    return graphs.Graph.of(2 * q * q, sorted({(min(edge), max(edge)) for edge in edges}))


@pytest.mark.parametrize(("q", "root"), [(3, 2), (5, 2), (7, 3), (11, 2), (13, 2)])
def test_a_slim_fly_cable_by_cable(q, root):
    """The second largest eigenvalue tells how many cables any two halves have between them at least."""
    found, graph = slim_fly(q), slim(q, root)
    assert (found.switches, found.cables, found.hops) == (graph.size, len(graph.edges), graph.diameter)
    assert {graph.degree(i) for i in range(graph.size)} == {2 * found.cables // found.switches}
    groups = set(range((q - 1) // 2)) | set(range(q, q + (q + 1) // 2))  # of q switches each, half of either kind
    assert found.bisection == sum((i // q in groups) != (j // q in groups) for i, j in graph.edges)
    adjacent = np.zeros((graph.size, graph.size))
    for i, j in graph.edges:
        adjacent[i, j] = adjacent[j, i] = 1
    least = (graph.degree(0) - np.linalg.eigvalsh(adjacent)[-2]) * graph.size / 4
    assert least == pytest.approx(q**3 / 2)
    assert 0 <= found.bisection - least <= q / 2 + 1e-6


def test_slim_flies_of_the_paper():
    """10,830 endpoints on 722 switches with 29 cables between them, and 15 of endpoints, each."""
    found = slim_fly(19)
    assert (found.hosts, found.switches, 2 * found.cables // found.switches) == (10_830, 722, 29)
    assert slim_fly(5, hosts=1)[:3] == (50, 50, 175)  # as many switches as 7 cables can reach in two steps


@pytest.mark.parametrize("sides", [(1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (5, 6)])
def test_a_torus_is_that_of_gossip(sides):
    found, graph = torus(*sides), graphs.torus(*sides)
    assert (found.hosts, found.cables, found.hops) == (graph.size, len(graph.edges), graph.diameter)


@pytest.mark.parametrize("sides", [(1, 1), (1, 2), (2, 2), (2, 4), (3, 4), (4, 4), (5, 6)])
def test_a_mesh_is_the_grid_of_gossip(sides):
    found, graph = torus(*sides, closed=False), graphs.grid(*sides)
    assert (found.hosts, found.cables, found.hops) == (graph.size, len(graph.edges), graph.diameter)
    left = [i for i in range(graph.size) if (i // sides[1] if sides[0] > sides[1] else i % sides[1]) < max(sides) // 2]
    assert found.bisection == sum((i in left) != (j in left) for i, j in graph.edges)


def test_textbooks_on_64_hosts():
    """Hennessy, Patterson, appendix on interconnection networks: bisection, and cables between hosts, of 64 in a ring,
    a mesh, a torus and a hypercube; by Grama et al., chapter 2, 2 (√p - 1) hops, √p and 2 (p - √p) cables of a mesh.
    """
    made = [torus(64), torus(8, 8, closed=False), torus(8, 8), torus(*[2] * 6)]
    assert [found.bisection for found in made] == [2, 8, 16, 32]
    assert [found.cables for found in made] == [64, 112, 128, 192]
    assert [found.hops for found in made] == [32, 14, 8, 6]


@pytest.mark.parametrize("ranks", [4, 6, 16])
@pytest.mark.parametrize("closed", [True, False])
def test_an_all_to_all_on_a_ring_takes_what_crosses_its_middle(ranks, closed):
    """How to Scale Your Model, chapter 3, question 10: a quarter of an all-gather's time, of long rings both ways."""
    hops = [[abs(i - j) for j in range(ranks)] for i in range(ranks)]
    loads = [0.0] * (2 * ranks)  # of each cable's two ways
    for i in range(ranks):
        for j in range(ranks):
            right, far = j > i, closed and hops[i][j] > ranks / 2
            steps = ranks - hops[i][j] if far else hops[i][j]
            halves = (right, not right) if closed and 2 * steps == ranks else (right != far,)  # both ways are as short
            for way in halves:
                for k in range(steps):
                    at = (i + k if way else i - 1 - k) % ranks
                    loads[2 * at + way] += 1 / len(halves)
    piece = 1 / ranks**2  # of an array of one byte
    assert torus(ranks, closed=closed).all_to_all_s(ranks * piece, 1.0) == pytest.approx(max(loads) * piece)
    if closed:
        assert max(loads) * piece == pytest.approx(1 / 8)  # all gathered, both ways, in 1/2


@pytest.mark.parametrize("lg", [1, 3, 6])
def test_a_torus_of_twos_is_a_hypercube(lg):
    assert torus(*[2] * lg) == (2**lg, 0, lg * 2 ** (lg - 1), 2 ** (lg - 1), lg)


@pytest.mark.parametrize("sides", [(3, 2), (2, 3), (3, 2, 2), (3, 3)])
def test_a_torus_of_threes_and_twos_is_a_hyperx(sides):
    """All of a side are joined to each other; of two triangles that three cables join, these are the bisection."""
    assert torus(*sides)[2:] == hyperx(*sides)[2:]


def test_the_network_of_t2hx():
    """Domke et al. 2019, SC19: 672 nodes on 96 switches of 12 x 8, with 57.1% of the full bisection."""
    found = hyperx(12, 8, hosts=7)
    assert (found.hosts, found.switches, found.hops) == (672, 96, 2)
    assert found.bisection / (found.hosts / 2) == pytest.approx(0.571, abs=0.0005)


@pytest.mark.parametrize("sides", [(2,), (4, 2), (4, 4), (2, 4, 6)])
@pytest.mark.parametrize("links", [1, 3])
def test_a_hyperx_cable_by_cable(sides, links):
    switches = list(product(*map(range, sides)))
    pairs = [(i, j) for i, j in combinations(switches, 2) if sum(a != b for a, b in zip(i, j, strict=True)) == 1]
    found = hyperx(*sides, hosts=5, links=links)
    assert (found.hosts, found.cables) == (5 * len(switches), links * len(pairs))
    halves = [sum(2 * i[k] < side <= 2 * j[k] for i, j in pairs) for k, side in enumerate(sides)]
    assert found.bisection == links * min(halves)
    assert found.hops == len(sides)


def test_what_a_hyperx_generalizes():
    """A hypercube, all to all others, and a flattened butterfly (Kim, Dally, Abts 2007), the 16-ary 4-flat: switches of
    n(k-1) + 1 = 61 ports, for 64 Ki hosts.
    """
    assert hyperx(*[2] * 6, 1)[2:] == torus(*[2] * 6)[2:]
    assert hyperx(9) == (9, 9, 36, 20, 1)
    flat = hyperx(16, 16, 16, hosts=16)
    assert (flat.hosts, 2 * flat.cables // flat.switches + 16) == (65_536, 61)
    assert hyperx(1) == (1, 1, 0, 0, 0)
    assert hyperx(1 << 20, links=np.int8(2)).cables == (1 << 20) * ((1 << 20) - 1)


def test_pods_of_tpus():
    """Google's: of v5e 16 x 16 chips, with 1.6 TB/s between halves; of v4 4096 chips, three axes of 16."""
    pod = preset("tpu-v5e")
    assert torus(16, 16).hosts == pod.devices_per_node
    assert torus(16, 16).bisection * pod.inside.bytes_per_s / 4 == pytest.approx(1.6e12)
    assert torus(16, 16, 16) == (preset("tpu-v4").devices_per_node, 0, 3 * 4096, 2 * 256, 24)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: fat_tree(5), "ports is 5; needs an even number"),
        (lambda: fat_tree(4, 0), "levels is 0"),
        (lambda: fat_tree(48, 2, 4), "oversubscription is 4.* of 48 ports; needs whole numbers"),
        (lambda: fat_tree(4, 2, 1e9), "oversubscription is 1.* of 4 ports"),
        (lambda: fat_tree(64, 2, hosts=2049), "hosts is 2049; needs at most 2048"),
        (lambda: fat_tree(64, 1, hosts=-1), "hosts is -1; needs at least 0"),
        (lambda: fat_tree(4, 2, 0), "oversubscription is 0.* of 4 ports"),
        (lambda: dragonfly(2, 0, 2), "switches is 0"),
        (lambda: dragonfly(2, 3, 2, 8), "groups is 8; needs at most 7, with 6 cables of each to others"),
        (torus, "a torus of no sides"),
        (hyperx, "a HyperX of no sides"),
        (lambda: hyperx(4, 2.5), "side is 2.5"),
        (lambda: hyperx(4, hosts=0), "hosts is 0"),
        (lambda: hyperx(4, links=0), "links is 0"),
        (lambda: torus(4, 0), "side is 0"),
        (lambda: slim_fly(2), "q is 2"),
        (lambda: slim_fly(6), "q is 6; needs a remainder by 4 of 0, 1 or 3"),
        (lambda: slim_fly(5, -1), "hosts is -1"),
        (lambda: torus(4).all_to_all_s(1, 0), "bytes_per_s is 0"),
    ],
)
def test_what_no_network_is(made, message):
    with pytest.raises(ArgumentError, match=message):
        made()
