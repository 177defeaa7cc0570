"""Ulysses: what travels, and what is done again."""

from itertools import pairwise

import numpy as np
import pytest
from sequence_attention import HEADS, NOISE, SPLITS, TOKENS, WIDTH, inputs, whole

from simdist.errors import ArgumentError
from simdist.parallel.sequence import Even, UlyssesAttention, ulysses_elements

N, H = 2 * TOKENS, WIDTH


def traffic(comm, split, recompute):
    """Items that this rank gives to exchanges and sends, forward and backward; and y and dx."""
    x, dy = inputs()
    cut = SPLITS[split](comm)
    layer = UlyssesAttention("it", HEADS, cut, 0.3, recompute=recompute, algorithm="pairwise")
    marks, found = [len(comm.recorder.rows)], []
    y, context = layer.forward(cut.part(x), NOISE)
    marks.append(len(comm.recorder.rows))
    dx, _ = layer.backward_input(context, cut.part(dy))
    marks.append(len(comm.recorder.rows))
    spans = comm.recorder.spans()
    for a, b in pairwise(marks):
        given = [s.bytes // 8 for s in spans[a:b] if s.name.startswith("all_to_all")]
        found.append([given, sum(s.bytes for s in spans[a:b] if s.name == "send") // 8])
    return found, cut.own(TOKENS), y, dx


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_traffic(spmd, p, split, recompute):
    """4Nh/P items a rank, layer and direction, of which its own share, 1/P, stays; recomputation sends none again."""
    x, dy = inputs()
    expected = whole(x, dy, dropout=0.3)
    qkv, y = 3 * N * H // p, N * H // p
    sent = 4 * N * H * (p - 1) // p**2
    assert qkv + y == ulysses_elements(N, H, p) == ulysses_elements(N, H, p, kv_width=H / 2) * 4 / 3
    for found, own, own_y, own_dx in spmd(traffic, p, split, recompute):
        assert found == [[[qkv, y], sent], [[y, qkv], sent]]
        np.testing.assert_allclose(own_y, expected[0][:, own], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(own_dx, expected[1][:, own], rtol=1e-12, atol=1e-12)


def test_only_what_is_not_recomputed_is_kept(spmd):
    def program(comm):
        x = np.zeros((2, TOKENS // comm.size, 3 * WIDTH))
        contexts = [UlyssesAttention("it", HEADS, Even(comm), recompute=r).forward(x)[1] for r in (False, True)]
        return [sum(item.nbytes for item in flat(context)) for context in contexts]

    def flat(thing):
        return (
            [x for item in thing for x in flat(item)]
            if isinstance(thing, tuple)
            else [thing] * hasattr(thing, "nbytes")
        )

    qkv, y, scores = 3 * N * H // 2 * 8, N * H // 2 * 8, 2 * HEADS // 2 * TOKENS**2 * 8
    assert spmd(program, 2) == [[qkv + y + scores, qkv]] * 2


def test_at_least_one_rank():
    assert ulysses_elements(8, 8, 1) == 4 * 8 * 8
    with pytest.raises(ArgumentError, match="ranks is 0"):
        ulysses_elements(8, 8, 0)


@pytest.mark.parametrize(
    ("heads", "groups", "told"),
    [(3, None, "3 heads on sp 2 leave 1 over"), (6, 3, "3 heads of keys and values on sp 2 leave 1 over")],
)
def test_heads_that_ranks_cannot_share(spmd, heads, groups, told):
    def program(comm):
        with pytest.raises(ArgumentError, match=told):
            UlyssesAttention("it", heads, Even(comm), groups=groups)

    spmd(program, 2)
