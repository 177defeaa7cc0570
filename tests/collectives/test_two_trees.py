"""Two trees: the pictures of the docstring, and that nobody is ever asked for two things at once."""

from collections import Counter

from simdist.collectives.two_trees import two_trees

MANY = [*range(1, 70), 100, 127, 128, 129, 1000]


def test_the_trees_of_the_picture():
    trees = two_trees(8)
    children = [{r: [e.peer for e in trees.below[r] if e.tree == t] for r in range(8)} for t in (0, 1)]
    assert {r: sorted(c) for r, c in children[0].items() if c} == {7: [3], 3: [1, 5], 1: [0, 2], 5: [4, 6]}
    assert {r: sorted(c) for r, c in children[1].items() if c} == {0: [4], 4: [2, 6], 2: [1, 3], 6: [5, 7]}


def test_both_are_binary_trees_over_all_ranks():
    for p in MANY:
        trees = two_trees(p)
        for t in (0, 1):
            parent = {r: e.peer for r in range(p) for e in trees.above[r] if e.tree == t}
            (root,) = set(range(p)) - set(parent)
            depths = []
            for rank in range(p):
                depth = 0
                while rank != root:
                    rank, depth = parent[rank], depth + 1
                depths.append(depth)
            assert max(depths) <= p.bit_length() - 1  # as shallow as binary trees of p ranks can be
        assert all(len(below) <= 2 for below in trees.below)


def test_an_inner_rank_of_one_is_a_leaf_of_the_other():
    for p in MANY:
        trees = two_trees(p)
        assert all(len({e.tree for e in below}) <= 1 for below in trees.below)


def test_edges_are_seen_alike_from_both_ends():
    for p in MANY:
        trees = two_trees(p)
        up = {(e.tree, r, e.peer, e.first) for r in range(p) for e in trees.above[r]}
        down = {(e.tree, e.peer, r, e.first) for r in range(p) for e in trees.below[r]}
        assert up == down
        assert len(up) == 2 * (p - 1)


def test_nobody_sends_or_receives_twice_in_a_step():
    """With s segments the edge first used in step f is used in f, f + 2, …: what counts is f's parity."""
    for p in MANY:
        trees = two_trees(p)
        for edges in (*trees.above, *trees.below):
            assert max(Counter(e.first % 2 for e in edges).values(), default=0) <= 1


def test_a_rank_sends_up_what_its_children_have_sent_before():
    for p in MANY:
        trees = two_trees(p)
        for above, below in zip(trees.above, trees.below, strict=True):
            for e in above:
                assert all(child.first < e.first for child in below if child.tree == e.tree)
        last = max((e.first for edges in trees.above for e in edges), default=-1)
        assert trees.fill == last + 1 <= 2 * (p - 1).bit_length()


def test_steps():
    assert two_trees(1).steps(9) == 0
    assert [two_trees(4).steps(s) for s in (1, 2, 9)] == [3, 5, 19]
