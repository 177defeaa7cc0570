"""Binomial: the tree of the docstring, and what holds of every tree."""

import pytest

from simdist.arrays import partition
from simdist.collectives.tree import Binomial, Branch


def test_the_tree_of_the_picture():
    children = {r: [child.rank for child in Binomial(8, r).children] for r in range(8)}
    assert children == {0: [4, 2, 1], 1: [], 2: [3], 3: [], 4: [6, 5], 5: [], 6: [7], 7: []}


def test_from_another_root_the_tree_is_turned():
    children = {r: [child.rank for child in Binomial(6, r, root=4).children] for r in range(6)}
    assert children == {4: [2, 0, 5], 5: [], 0: [1], 1: [], 2: [3], 3: []}


@pytest.mark.parametrize("p", [*range(1, 34), 100])
def test_a_branch_is_a_rank_and_the_branches_below_it(p):
    for root in (0, p // 3, p - 1):
        trees = [Binomial(p, r, root) for r in range(p)]
        assert [tree.parent is None for tree in trees] == [r == root for r in range(p)]
        for tree in trees:
            first = tree.branch.first + 1
            for child in reversed(tree.children):
                assert trees[child.rank].parent == tree.branch.rank
                assert trees[child.rank].branch == child
                assert child.first == first
                first = child.end
            assert tree.branch.end == first
        assert trees[root].branch == Branch(root, 0, p)


@pytest.mark.parametrize("p", [*range(1, 34), 100])
def test_the_last_child_is_served_in_the_last_round(p):
    """If a rank serves its children one a round from when it has been served, all are served in ceil(lg p)."""
    served = {0: 0}
    for rank in range(p):  # parents come before their children
        for k, child in enumerate(Binomial(p, rank).children, 1):
            served[child.rank] = served[rank] + k
    assert max(served.values()) == Binomial.rounds(p)
    assert 2 ** Binomial.rounds(p) >= p > 2 ** Binomial.rounds(p) // 2


def test_a_block_holds_the_chunks_of_a_branch_from_its_own_on():
    tree = Binomial(6, 2, root=4)  # place 4, with place 5 below: ranks 2 and 3
    part = tree.layout(partition(20, 6))  # chunks of 4 4 3 3 3 3
    assert [part(tree.branch), *map(part, tree.children)] == [slice(0, 6), slice(3, 6)]
    tree = Binomial(6, 4, root=4)  # the root: ranks 4 5 0 1 2 3 in this order
    part = tree.layout(partition(20, 6))
    assert [part(child) for child in tree.children] == [slice(14, 20), slice(6, 14), slice(3, 6)]
