"""Attention a block at a time, against the same over all keys at once, however the keys are cut."""

import numpy as np
import pytest

from simdist.nn import functional as f
from simdist.nn.functional import blockwise
from simdist.nn.functional.heads import split_heads, split_qkv

HEADS, D = 3, 5


def run(qkv, dy, cuts, keep=None, share=0.0):
    """Each run of queries looks at its own run of keys, then at the earlier ones from the nearest to the farthest."""
    q, k, v = split_qkv(qkv, HEADS, HEADS)
    dys = split_heads(dy, HEADS)
    runs = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, qkv.shape[1]], strict=True)]

    def pairs():
        for i, queries in enumerate(runs):
            for keys in reversed(runs[: i + 1]):
                yield (
                    queries,
                    keys,
                    None
                    if keep is None
                    else (lambda n, a, b, at=(keys, queries): keep[n][:, :, at[0], at[1]][:, :, a, b]),
                )

    state = blockwise.initial_state(q)
    for queries, keys, kept in pairs():
        part = q[:, :, queries], k[:, :, keys], v[:, :, keys]
        blockwise.attend(*part, state.of(queries), queries == keys, kept, share)
    y, lse = blockwise.finish(state, qkv)
    dqkv = np.zeros_like(qkv)
    dq, dk, dv = split_qkv(dqkv, HEADS, HEADS)
    sums = blockwise.sums_of(y, dy, HEADS)
    for queries, keys, kept in pairs():
        of_queries = tuple(x[:, :, queries] for x in (q, dq, dys, sums, lse))
        blockwise.attend_backward(
            of_queries, tuple(x[:, :, keys] for x in (k, dk, v, dv)), queries == keys, kept, share
        )
    return y, dqkv


def inputs(t, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(2, t, 3 * HEADS * D)), random.normal(size=(2, t, HEADS * D))


@pytest.mark.parametrize("cuts", [[], [1], [29], [7, 8, 20], list(range(1, 30))], ids=len)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_however_the_keys_are_cut(cuts, share):
    qkv, dy = inputs(30)
    keep = np.random.default_rng(1).random((2, HEADS, 30, 30)) >= share if share else None
    y, p = f.attention(qkv, HEADS, keep, share)
    found = run(qkv, dy, cuts, keep, share)
    np.testing.assert_allclose(found[0], y, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        found[1], f.attention_backward(qkv, y, p, dy, keep, share, groups=HEADS), rtol=0, atol=1e-12
    )


def test_blocks_of_several_tiles_whose_last_is_short():
    qkv, dy = inputs(300)
    y, p = f.attention(qkv, HEADS)
    found = run(qkv, dy, [130])
    np.testing.assert_allclose(found[0], y, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found[1], f.attention_backward(qkv, y, p, dy, groups=HEADS), rtol=0, atol=1e-12)


def test_the_sum_is_kept_as_a_logarithm():
    """One key: lse is its score, and whoever looks at nothing else gets its value."""
    qkv, _ = inputs(1)
    q, k, v = split_qkv(qkv, HEADS, HEADS)
    state = blockwise.initial_state(q)
    blockwise.attend(q, k, v, state, causal=True)
    y, lse = blockwise.finish(state, qkv)
    np.testing.assert_allclose(lse, np.vecdot(q, k) / np.sqrt(D), rtol=1e-14)
    np.testing.assert_allclose(split_heads(y, HEADS), v, rtol=1e-14)
