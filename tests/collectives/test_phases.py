"""Formulas of phases that cross different links, beside the virtual world."""

from types import SimpleNamespace

import numpy as np
import pytest
from one_port import Network, hollow, perform

import simdist as sd
from simdist import collectives
from simdist.cluster import Link, preset
from simdist.collectives import Case, Formula, algorithms, formula, in_turn, over_nodes
from simdist.collectives.phases import longest, phase
from simdist.collectives.registry import choose
from simdist.comm.placement import Placement

SLOW, FAST = Link(5e-6, 1e9), Link(1e-6, 1e10)


def took_s(operation, name, p, num_bytes, cluster, root=0):
    arguments = hollow(operation, p, num_bytes, root)
    return perform(operation, name, p, *arguments, cluster=cluster, network=Network).seconds


def told_s(operation, name, p, num_bytes, cluster, **case):
    per_node = cluster.devices_per_node
    told = formula(operation, name, ranks=p, num_bytes=num_bytes, ranks_per_node=per_node, **case)
    return told.on(cluster, p)


def test_collectives_in_turn_keep_their_links():
    """They once took the slowest of all, and composed ones seemed to take 20% longer than they do."""
    first = over_nodes(Case(8, 100, ranks_per_node=4), Formula(2, 900, 30), Formula(1, 50))
    both = in_turn(first, Formula(1, 70))
    assert both == (4, 1020, 30)
    assert both.seconds(SLOW, 1e11, FAST) == first.seconds(SLOW, 1e11, FAST) + Formula(1, 70).seconds(SLOW, 1e11)
    assert both.senders == 4


def test_of_phases_at_once_the_longest_counts():
    both = longest(Formula(1, 1000), phase(Formula(0, 900), 0), phase(Formula(1, 100), 1))
    assert both == (1, 1000, 0)
    assert both.seconds(SLOW, 1e11, FAST) == 5e-6 + 100 / 1e9
    assert both.seconds(SLOW, 1e11, Link(0, 1e7)) == pytest.approx(900 / 1e7)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("all_reduce", "hierarchical"),
        ("all_reduce", "torus"),
        ("all_reduce", "ring"),
        ("all_gather", "hierarchical"),
        ("reduce_scatter", "hierarchical"),
        ("all_to_all", "hierarchical"),
    ],
)
@pytest.mark.parametrize(("p", "per_node"), [(16, 4), (12, 3), (8, 2)])
def test_bytes_between_nodes_are_those_of_the_record(operation, name, p, per_node):
    n = 48 * p * p
    cluster = preset("h100").with_(devices_per_node=per_node)
    trace = sd.run(lambda comm: run(comm, operation, name, n), p, cluster=cluster).trace
    sent = [0] * p
    for span in trace.spans:
        if span.name == "send" and span.peer // per_node != span.rank // per_node:
            sent[span.rank] += span.bytes
    told = formula(operation, name, ranks=p, num_bytes=n, ranks_per_node=per_node)
    assert told.between_bytes == pytest.approx(max(sent))
    if name == "hierarchical" and operation == "all_reduce":
        assert max(sent) == 2 * n / per_node * (1 - per_node / p)


def run(comm, operation, name, n):
    x = np.zeros(n // comm.size if operation == "all_gather" else n, np.uint8)
    x = x.reshape(comm.size, -1) if operation == "all_to_all" else x
    getattr(collectives, operation)(x, comm, algorithm=name)


@pytest.mark.parametrize(
    ("senders", "places", "cards", "share"),
    [(0, 0, 1, 0), (1, 1, 4, 1), (4, 4, 4, 1), (5, 5, 4, 2), (4, 7, 4, 2), (4, 7, 8, 1), (4, 7, 1, 4), (2, 8, 4, 2)],
)
def test_ranks_share_a_card_that_is_theirs_by_their_places(senders, places, cards, share):
    """Of ranks 0, 2, 4 and 6 two share a card if there are four, and two are idle."""
    cluster = preset("h100").with_(inside=Link(0, 1e30), between=Link(0, 1), nics_per_node=cards)
    assert phase(Formula(0, 100), senders, places).over(cluster, several_nodes=True) == pytest.approx(100 * share)


@pytest.mark.parametrize(
    ("operation", "name"), [("broadcast", "scatter_all_gather"), ("reduce", "reduce_scatter_gather")]
)
@pytest.mark.parametrize(("machine", "p"), [("v100", 16), ("v100", 24), ("h100", 32), ("h100-pcie", 8)])
@pytest.mark.parametrize("num_bytes", [1_500_000, 48_000_000])
def test_composed_collectives_take_what_their_parts_take(operation, name, machine, p, num_bytes):
    cluster = preset(machine)
    found_s = took_s(operation, name, p, num_bytes, cluster)
    assert 0.98 * found_s < told_s(operation, name, p, num_bytes, cluster) < 1.06 * found_s


@pytest.mark.parametrize("operation", ["reduce", "broadcast"])
@pytest.mark.parametrize("p", [24, 32, 33])
def test_auto_takes_the_best_over_nodes(operation, p):
    """By trees, 1.5 MB took up to 1.66 times as long."""
    cluster = preset("v100")
    ranks = SimpleNamespace(cluster=cluster, nodes=Placement(map(cluster.node_of, range(p))))
    chosen = choose(operation, ranks, 1_500_000).own.name
    times = {name: took_s(operation, name, p, 1_500_000, cluster) for name in set(algorithms(operation)) - {"direct"}}
    assert times[chosen] < 1.05 * min(times.values())


@pytest.mark.parametrize("root", [0, 5, 8])
@pytest.mark.parametrize("num_bytes", [64, 3_000_000])
@pytest.mark.parametrize(("machine", "p"), [("h100", 12), ("v100", 17)])
def test_a_chain_over_nodes_takes_what_its_formula_says(root, num_bytes, machine, p):
    """All its hops seemed to be between nodes, and each segment to pay a latency: up to five times as long."""
    cluster = preset(machine)
    found_s = took_s("broadcast", "chain", p, num_bytes, cluster, root)
    assert told_s("broadcast", "chain", p, num_bytes, cluster, root=root) == pytest.approx(found_s, rel=0.01)


@pytest.mark.parametrize("root", [0, 9])
@pytest.mark.parametrize("operation", ["broadcast", "reduce", "scatter", "gather"])
def test_a_root_reaches_its_own_node_by_the_link_inside(operation, root):
    cluster, p, n = preset("h100-pcie").with_(devices_per_node=8, nics_per_node=8), 11, 11 * 10_000_000
    found_s = took_s(operation, "linear", p, n, cluster, root)
    assert told_s(operation, "linear", p, n, cluster, root=root) == pytest.approx(found_s, rel=0.05)
