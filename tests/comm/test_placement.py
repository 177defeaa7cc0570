"""Which rank lives where, and groups whose ranks sit on their nodes in any order."""

import random

import pytest
from oracle import every_algorithm

from simdist.bench.trial import Trial, outcome
from simdist.cluster import preset
from simdist.comm.placement import Placement

ORDERS = {
    "turned round": lambda p: list(range(p))[::-1],
    "node about": lambda p: [r // 2 + (r % 2) * -(-p // 2) for r in range(p)],
    "shuffled": lambda p: random.Random(p).sample(range(p), p),
}


def test_what_follows_from_a_placement():
    nodes = Placement([1, 0, 1, 4])
    assert nodes.members == {0: [1], 1: [0, 2], 4: [3]}
    assert (nodes.num_nodes, nodes.equal, nodes.in_turn) == (3, False, False)
    assert nodes.neighbours(2) == [0, 2]
    assert nodes.part([3, 2, 0]) == (4, 1, 1)
    assert nodes.part([3, 2, 0]).in_turn
    assert nodes.part([1, 2]).equal


@pytest.mark.parametrize(
    ("nodes", "filled"),
    [
        ([0], True),
        ([0, 0, 1, 1, 4], True),
        ([2, 3, 5], True),
        ([0, 1, 1], False),
        ([0, 0, 1, 2, 2], False),
        ([0, 1, 0, 1], False),
        ([1, 1, 0, 0], False),
    ],
)
def test_who_fills_one_node_after_the_other(nodes, filled):
    assert Placement(nodes).filled == filled


@pytest.mark.parametrize(("operation", "name"), every_algorithm())
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("p", "per_node"), [(4, 2), (6, 3), (7, 3)])
def test_ranks_of_a_group_sit_on_their_nodes_in_any_order(spmd, operation, name, order, p, per_node):
    """For every root: who leads a node, and which node is which, must be the same to all."""
    keys = ORDERS[order](p)
    rooted = operation in ("broadcast", "reduce", "scatter", "gather")
    trials = [Trial(operation, name, 2 * p + 1, "int64", root=root) for root in range(p if rooted else 1)]

    def program(comm):
        group = comm.split(0, keys[comm.rank])
        return [outcome(trial, group).error for trial in trials]

    cluster = preset("a100").with_(devices_per_node=per_node)
    assert spmd(program, p, cluster=cluster, check=False) == [[0.0] * len(trials)] * p
