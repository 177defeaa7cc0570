"""The hierarchical all-reduce: nodes of equal and unequal size, what leaves a node, counts, steps."""

from math import inf

import numpy as np
import pytest
from anatomy import PAPER, RANKS, UNIT, costs, dissect, hold, seconds

from simdist.arrays import reduction
from simdist.cluster import Link, preset
from simdist.collectives import Case
from simdist.collectives.registry import find
from simdist.collectives.segments import SEGMENT_BYTES
from simdist.comm.virtual.communicator import VirtualCommunicator
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, UnknownNameError


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("per_node", [1, 2, 3, 4])
def test_results_counts_and_steps(p, per_node):
    cluster = UNIT.with_(devices_per_node=per_node)
    # By leaders in nodes of three, reduce and broadcast have two rounds each. Here they take one second: both
    # others send at once, and the leader need not wait for its first message to arrive before the second.
    early = 2 if per_node == 3 and p > 3 and p % 3 else 0
    hold("all_reduce", "hierarchical", p, cluster=cluster, ranks_per_node=per_node, early=early)


@pytest.mark.parametrize("p", [1, 4, 6, 7])
def test_by_leaders(p):
    cluster = UNIT.with_(devices_per_node=2)
    hold("all_reduce", "hierarchical", p, cluster=cluster, ranks_per_node=2, leaders=True)


def test_other_algorithms_inside():
    case = {"cluster": UNIT.with_(devices_per_node=4), "ranks_per_node": 4}
    inner = {"reduce_scatter": "recursive_halving", "all_reduce": "rabenseifner", "all_gather": "bruck"}
    hold("all_reduce", "hierarchical", 8, **case, **inner)
    inner = {"reduce": "linear", "all_reduce": "recursive_doubling", "broadcast": "chain"}
    hold("all_reduce", "hierarchical", 7, **case, **inner, early=None)  # linear: all steps at once


def test_rings_in_three_dimensions():
    """As in BlueConnect: of 4 x 4 x 4 ranks, 2 · 3 · 3 messages, and the bytes of one ring."""
    hold("all_reduce", "hierarchical", 8, cluster=UNIT.with_(devices_per_node=2), ranks_per_node=2, all_reduce="torus")
    said = find("all_reduce", "hierarchical").formula(Case(64, 6400, ranks_per_node=4), all_reduce="torus")
    assert tuple(said) == (18, 2 * 6300, 6300)
    assert said.seconds(Link(1, inf), inf, inside=Link(0, inf)) == 12
    assert said.seconds(Link(0, 1), inf, inside=Link(0, inf)) == 2 * 1500


@pytest.mark.parametrize(("p", "leaders"), [(8, None), (8, True), (7, None)])
def test_direct_between_nodes_sends_messages(p, leaders):
    """Leaders, and ranks that share a place, are on different nodes: they were counted as ranks of one."""
    hold(
        *("all_reduce", "hierarchical", p),
        cluster=UNIT.with_(devices_per_node=2),
        ranks_per_node=2,
        early=None,
        leaders=leaders,
        all_reduce="direct",
    )
    found = [
        find("all_reduce", "hierarchical").formula(
            Case(p, 8_000_000, ranks_per_node=2), leaders=leaders, all_reduce=name
        )
        for name in ("direct", "rabenseifner")
    ]
    assert found[0] == found[1]
    assert found[0].on(PAPER, 2 * PAPER.devices_per_node) == found[1].on(PAPER, 2 * PAPER.devices_per_node)


def test_all_ranks_tell_the_same_steps():
    """Where p does not divide the items, and the first chunk of a row takes one segment more than the others."""
    n = 4 * SEGMENT_BYTES + 1
    each = costs("all_reduce", "hierarchical", 4, n, ranks_per_node=2, all_reduce="double_tree")
    assert len({cost.steps for cost in each}) == 1


def test_inside_then_between_then_inside():
    run = dissect("all_reduce", "hierarchical", [np.ones(8, np.int8)] * 8, cluster=UNIT.with_(devices_per_node=4))
    between = [s for s in run.sends if s.rank // 4 != s.peer // 4]
    assert {(s.rank, s.peer) for s in between} == {(r, (r + 4) % 8) for r in range(8)}
    assert {s.start_s for s in between} == {3.0, 4.0}
    assert {s.start_s for s in run.sends} - {3.0, 4.0} == {0.0, 1.0, 2.0, 5.0, 6.0, 7.0}


def test_only_leaders_leave_the_node():
    cluster = UNIT.with_(devices_per_node=3)
    run = dissect("all_reduce", "hierarchical", [np.ones(8, np.int8)] * 7, cluster=cluster)
    assert {s.rank for s in run.sends if s.rank // 3 != s.peer // 3} == {0, 3, 6}


def test_what_leaves_a_node_does_not_grow_with_its_ranks():
    # In a ring of all, too, 2n(p-1)/p cross each border; here each node sends 2n(m-1)/m, all its ranks together.
    for per_node in (2, 4):
        give = [np.ones(64, np.int8)] * (4 * per_node)
        run = dissect("all_reduce", "hierarchical", give, cluster=UNIT.with_(devices_per_node=per_node))
        assert sum(s.bytes for s in run.sends if s.rank < per_node <= s.peer) == 2 * 64 * 3 // 4


def test_saves_latencies_on_slow_links():
    cluster = PAPER.with_(devices_per_node=8, between=Link(5e-5, 25e9))
    ring, hierarchical = (seconds("all_reduce", name, 64, 64_000, cluster=cluster) for name in ("ring", "hierarchical"))
    assert hierarchical < 0.6 * ring


def test_nodes_whose_ranks_are_not_neighbours():
    def program(comm):
        x = np.full(5, 10**comm.rank)
        mixed = comm.split(0, key=comm.rank % 2 * 10 + comm.rank)  # ranks 0 2 4 1 3 5: each node is spread out
        find("all_reduce", "hierarchical").run(x, mixed, reduction("sum"))
        return x, mixed.nodes

    for x, nodes in run_virtual(program, 6, UNIT.with_(devices_per_node=3))[0]:
        assert (x == 111111).all()
        assert list(nodes) == [0, 0, 1, 0, 1, 1]


def test_splits_a_communicator_once(monkeypatch):
    calls = []
    split = VirtualCommunicator.split
    monkeypatch.setattr(VirtualCommunicator, "split", lambda comm, *args: calls.append(comm.rank) or split(comm, *args))

    def program(comm):
        for _ in range(3):
            find("all_reduce", "hierarchical").run(np.ones(4), comm.shadow, reduction("sum"))

    run_virtual(program, 4, UNIT.with_(devices_per_node=2))
    assert sorted(calls) == [0, 0, 1, 1, 2, 2, 3, 3]  # into nodes, and into those who share a place in their node


def test_unequal_nodes_need_leaders():
    with pytest.raises(ArgumentError, match="same number of ranks on every node"):
        dissect("all_reduce", "hierarchical", [np.ones(3)] * 5, cluster=UNIT.with_(devices_per_node=2), leaders=False)
    with pytest.raises(ArgumentError, match="same number of ranks on every node"):
        costs("all_reduce", "hierarchical", 5, 8, ranks_per_node=2, leaders=False)


def test_an_unknown_phase_is_named():
    with pytest.raises(UnknownNameError, match=r"'broadcast'.*all_gather, all_reduce, reduce_scatter"):
        dissect("all_reduce", "hierarchical", [np.ones(3)] * 4, broadcast="chain")
    with pytest.raises(UnknownNameError, match="'nonsense'"):
        dissect("all_reduce", "hierarchical", [np.ones(3)] * 4, all_gather="nonsense")


def test_every_rank_hears_of_an_algorithm_that_there_is_not():
    """Also those that have no part in the phase."""

    def program(comm):
        with pytest.raises(UnknownNameError, match="all_reduce algorithm 'nonsense'"):
            find("all_reduce", "hierarchical").run(
                np.ones(3), comm, reduction("sum"), leaders=True, all_reduce="nonsense"
            )
        return comm.recorder.rows

    assert run_virtual(program, 4, UNIT.with_(devices_per_node=2))[0] == [[]] * 4


@pytest.mark.parametrize(("p", "per_node"), [(8, 0), (8, 4), (12, 3), (16, 16)])
@pytest.mark.parametrize("num_bytes", [240, 240 * 100_003])
@pytest.mark.parametrize("inside", [PAPER.inside, Link(1e-6, 450e9)])
def test_takes_as_long_as_the_formula_says(p, per_node, num_bytes, inside):
    # A network card for each rank, so that the ranks of a node do not wait for each other.
    cluster = PAPER.with_(devices_per_node=per_node or p, nics_per_node=per_node or p, inside=inside)
    formula = find("all_reduce", "hierarchical").formula(Case(p, num_bytes, ranks_per_node=per_node))
    assert seconds("all_reduce", "hierarchical", p, num_bytes, cluster=cluster) == pytest.approx(
        formula.on(cluster, p), rel=1e-9
    )


def test_leaders_take_as_long_as_the_formula_says():
    cluster = PAPER.with_(devices_per_node=4, inside=Link(1e-6, 450e9))
    formula = find("all_reduce", "hierarchical").formula(Case(16, 16_000_000, ranks_per_node=4), leaders=True)
    found_s = seconds("all_reduce", "hierarchical", 16, 16_000_000, cluster=cluster, leaders=True)
    assert found_s == pytest.approx(formula.on(cluster, 16), rel=1e-9)


def test_the_formula_has_a_link_inside_and_one_between():
    """2(k-1) α + 2n(k-1)/k β inside the nodes, 2(m-1) α + 2n/k (m-1)/m β between them, and n(p-1)/p γ."""
    n, k, m = 1_000_000, 8, 4
    cluster = PAPER.with_(devices_per_node=k, nics_per_node=k, inside=Link(1e-6, 450e9))
    inside_s = 2 * (k - 1) * 1e-6 + 2 * n * (k - 1) / k / 450e9
    between_s = 2 * n / k * (m - 1) / m / 25e9
    formula = find("all_reduce", "hierarchical").formula(Case(k * m, n, ranks_per_node=k))
    expected_s = inside_s + 2 * (m - 1) * 5e-6 + between_s + n * (k * m - 1) / (k * m) / 200e9
    assert formula.on(cluster, k * m) == pytest.approx(expected_s, rel=1e-12)
    assert formula == (2 * (k + m - 2), 2 * n * 31 / 32, n * 31 / 32)


@pytest.mark.parametrize(("name", "leaders", "senders"), [("v100", None, 8), ("h100", None, 8), ("v100", True, 1)])
def test_those_who_send_at_once_share_network_cards(name, leaders, senders):
    """As in the virtual world: of eight ranks on four cards each has half of one, of leaders each has its own."""
    cluster, n = preset(name), 1 << 28
    formula = find("all_reduce", "hierarchical").formula(Case(32, n, ranks_per_node=8), leaders=leaders)
    assert formula.senders == senders
    measured = seconds("all_reduce", "hierarchical", 32, n, cluster=cluster, leaders=leaders)
    assert formula.on(cluster, 32) == pytest.approx(measured, rel=2e-3)
