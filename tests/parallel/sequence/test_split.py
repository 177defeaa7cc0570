"""Which tokens are whose: each once, in order, and back together as they were."""

import numpy as np
import pytest

from simdist.arrays import phantom
from simdist.errors import ArgumentError, UnknownNameError
from simdist.parallel.sequence import Even, Zigzag, causal_pairs


def test_even(spmd):
    assert [own.tolist() for own in spmd(lambda comm: Even(comm).own(8), 4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_zigzag(spmd):
    assert [own.tolist() for own in spmd(lambda comm: Zigzag(comm).own(8), 4)] == [[0, 7], [1, 6], [2, 5], [3, 4]]
    assert [own.tolist() for own in spmd(lambda comm: Zigzag(comm).own(8), 2)] == [[0, 1, 6, 7], [2, 3, 4, 5]]


@pytest.mark.parametrize("kind", [Even, Zigzag])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_work_is_the_pairs_that_a_mask_leaves(spmd, kind, p):
    """Half a pair for a query's own key; in halves of a block of 3 by 3."""

    def program(comm):
        split = kind(comm)
        return split.work(comm.rank), int((2 * split.own(3 * split.runs * p) + 1).sum()) / 9

    found = spmd(program, p)
    assert all(work == pairs for work, pairs in found)
    assert [work for work, _ in found] == [2 * r + 1 if kind is Even else 4 * p for r in range(p)]


@pytest.mark.parametrize("kind", [Even, Zigzag])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_parts_are_all_and_go_together_again(spmd, kind, p):
    x = np.arange(2 * 48 * 3).reshape(2, 48, 3)

    def program(comm):
        split = kind(comm)
        parts = split.parted(x)
        np.testing.assert_array_equal(split.joined(parts), x)
        np.testing.assert_array_equal(split.part(x), parts[comm.rank])
        np.testing.assert_array_equal(x[:, split.own(48)], parts[comm.rank])
        assert split.joined(split.parted(phantom(x.shape))).shape == x.shape
        assert split.part(phantom((2, 48))).shape == (2, 48 // p)
        return split.own(48), [split.place_of(token, 48) for token in (0, 23, 47)]

    found = spmd(program, p)
    assert sorted(np.concatenate([own for own, _ in found]).tolist()) == list(range(48))
    for own, places in found:
        assert (np.diff(own) > 0).all(), "keys before a query in the text are before it in the block"
        assert [found[rank][0][at] for rank, at in places] == [0, 23, 47]


@pytest.mark.parametrize("layout", ["even", "zigzag", "striped"])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_pairs_are_those_of_the_mask(spmd, layout, p):
    n = 4 * p
    kinds = {"even": Even, "zigzag": Zigzag}
    own = [np.arange(r, n, p) for r in range(p)]
    if layout in kinds:
        own = spmd(lambda comm: kinds[layout](comm).own(n), p)
    mask = np.tri(n)
    assert causal_pairs(layout, n, p).tolist() == [[mask[np.ix_(q, k)].sum() for k in own] for q in own]


def test_the_slowest_rank_of_each_step_of_a_ring():
    """With c tokens a rank, c² in all steps but the first; striped, c(c+1)/2: Brandon et al. 2023, section 3."""
    p, c = 4, 64
    i, s = np.arange(p)[:, None], np.arange(p)
    slowest = {name: causal_pairs(name, p * c, p)[i, (i - s) % p].max(axis=0).tolist() for name in ("even", "striped")}
    assert slowest["even"] == [c * (c + 1) // 2, *[c * c] * (p - 1)]
    assert slowest["striped"] == [c * (c + 1) // 2] * p
    assert len(set(causal_pairs("zigzag", p * c, p).sum(axis=1))) == 1


def test_pairs_that_there_are_not():
    with pytest.raises(UnknownNameError, match="zigzag"):
        causal_pairs("zigzg", 8, 2)
    with pytest.raises(ArgumentError, match="6 tokens on 2 ranks"):
        causal_pairs("zigzag", 6, 2)


def test_texts_that_do_not_come_out_even(spmd):
    def program(comm):
        with pytest.raises(ArgumentError, match=r"10 tokens on sp 4 leave 2 over; .* on sp 1, 2, 5, 10"):
            Even(comm).own(10)
        with pytest.raises(ArgumentError, match=r"12 tokens on sp 4 \(2 parts a rank\) leave 4 over; .* 1, 2, 3, 6"):
            Zigzag(comm).runs_of(12)

    spmd(program, 4)
