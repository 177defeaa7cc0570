"""Heads: causal attention, in which every token attends to those before it, forward and backward.

    n, h, t    samples, heads, tokens
    q, k, v    queries and keys, each (n, h, t, e), and values, (n, h, t, w), out of qkv: see
               `simdist.nn.functional.groups`
    p          probabilities, a tile of queries at a time, each (n, h, keys, queries): column i holds the weights
               of the keys for query i

A query sees no later key. So a tile has the keys up to that of its last query, and the rest is neither multiplied
nor kept: with four tiles ten squares of sixteen.

             queries
        keys  0   1   2   3
           0  /   #   #   #        /  the diagonal, where a mask hides the later keys
           1      /   #   #        #  all pairs
           2          /   #
           3              /

Keys come before queries so that maxima and sums over the keys run along memory. A few samples are processed at a
time, so that their scores stay in the cache between the products that make and use them.
"""

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from simdist.arrays import Array, charge, kind_of, moved
from simdist.arrays.blocks import BLOCK_BYTES, blocks
from simdist.arrays.fused import fused
from simdist.arrays.qkv import widths
from simdist.arrays.working import room, settle, widened, working_dtype
from simdist.nn.functional.groups import join, split_heads, split_qkv
from simdist.nn.functional.mask import dropout
from simdist.nn.functional.matrix import product

__all__ = ["TILE", "attention", "attention_backward", "mask_later_keys", "num_pairs", "tile_backward", "tiles"]

TILE = 64
"""The least number of queries in a tile: smaller products are slow."""
_TILES = 8  # at most; more would save little


def num_pairs(tokens: int, size: int | None = None) -> int:
    """The number of scores that attention computes for a head: tokens², less those outside of all tiles."""
    return sum((queries.stop - queries.start) * keys.stop for queries, keys in tiles(tokens, size))


@fused("attention")
def attention(
    qkv: Array,
    heads: int,
    keep: Array | None = None,
    share: float = 0.0,
    groups: int | None = None,
    value_width: int | None = None,
) -> tuple[Array, tuple[Array, ...]]:
    """Returns y = softmax(q kᵀ / √e + mask) v for each head, and the probabilities.

    Args:
        qkv: shape (n, t, h * (2 e + w)): for each head its query, its key, its value, so that a part of the heads
            is a run of the columns. If heads share keys and values, (n, t, h * e + g * (e + w)).
        heads: h.
        keep, share: which probabilities dropout keeps, booleans of shape (n, h, t, t), keys before queries, and
            the share that it drops.
        groups: g, of heads that share a key and a value, a divisor of h; h if not given.
        value_width: w, the features of a value; e if not given.

    Returns:
        y, shape (n, t, h * w), and the tiles of p before dropout.

    Cost: a product of 2 n h e `num_pairs(t)` operations, and one of 2 n h w as often.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.
    """
    groups, (n, t, columns) = groups or heads, qkv.shape
    _, w = widths(columns, heads, groups, value_width)
    y = np.empty_like(qkv, shape=(n, t, heads * w))
    p = tuple(np.empty_like(qkv, shape=(n, heads, keys.stop, run.stop - run.start)) for run, keys in tiles(t))
    for part in _parts(qkv, heads):
        q, k, v = split_qkv(widened(qkv[part]), heads, groups, w)
        all_heads = room(y[part])
        ys = split_heads(all_heads, heads)
        for (queries, keys), tile in zip(tiles(t), p, strict=True):
            kept = None if keep is None else keep[part][:, :, keys, queries]
            weights = _weights(k[:, :, keys], q[:, :, queries], tile[part], kept, share)
            product(weights.swapaxes(-1, -2), v[:, :, keys], out=ys[:, :, queries], itemsize=qkv.itemsize)
        settle(y[part], all_heads)
    return y, p


@fused("attention")
def attention_backward(
    qkv: Array, y: Array, p: tuple[Array, ...], dy: Array, keep: Array | None = None, share: float = 0.0, *, groups: int
) -> Array:
    """Returns dqkv; qkv, y, p, keep, share and groups, without a default, are as for `attention`.

    Softmax's backward needs Σ p dp over the keys, which is y · dy: dropped terms are zero in both.

    Cost: two products of 2 n h e `num_pairs(t)` operations each, and two of 2 n h w as often.

    Source: Dao et al. 2022, arXiv 2205.14135, appendix B.2 (Σ p dp = y · dy).
    """
    heads, t, dqkv = p[0].shape[1], qkv.shape[1], np.empty_like(qkv)
    w = y.shape[-1] // heads
    for part in _parts(qkv, heads):
        q, k, v = split_qkv(widened(qkv[part]), heads, groups, w)
        worked = room(dqkv[part])
        dq, dk, dv = split_qkv(worked, heads, groups, w) if groups == heads else (np.empty_like(x) for x in (q, k, v))
        ys, dys = split_heads(widened(y[part]), heads), split_heads(widened(dy[part]), heads)
        sums = np.vecdot(ys, dys)[:, :, None]
        charge(2 * ys.size, 2 * ys.size * qkv.itemsize)
        # The last tile sees every key, so it fills the arrays to which the others then add.
        for (queries, keys), tile in zip(reversed(tiles(t)), reversed(p), strict=True):
            kept = None if keep is None else keep[part][:, :, keys, queries]
            of_queries = q[:, :, queries], dq[:, :, queries], dys[:, :, queries], sums[..., queries]
            of_keys = k[:, :, keys], dk[:, :, keys], v[:, :, keys], dv[:, :, keys]
            tile_backward(
                of_queries, of_keys, widened(tile[part]), kept, share, qkv.itemsize, add_to_dk_dv=keys.stop < t
            )
        if groups != heads:
            join(worked, dq, dk, dv)
        settle(dqkv[part], worked)
    return dqkv


def tile_backward(
    of_queries: tuple[Array, ...],
    of_keys: tuple[Array, ...],
    p: Array,
    keep: Array | None,
    share: float,
    itemsize: int,
    add_to_dq: bool = False,
    add_to_dk_dv: bool = True,
) -> None:
    """One tile of `attention_backward`.

    Args:
        of_queries: of its queries q, dq, dy and the sums y · dy.
        of_keys: of its keys k, dk, v, dv.
        p: the probabilities, keys before queries.
        keep, share: as for `attention`, of this tile.
        itemsize: of the numbers as stored.
        add_to_dq, add_to_dk_dv: whether to add to dq, and to dk and dv, or to fill them.
    """
    (q, dq, dy, sums), (k, dk, v, dv) = of_queries, of_keys
    multiply = partial(product, itemsize=itemsize)
    ds = multiply(v, dy.swapaxes(-1, -2))
    multiply(p if keep is None else dropout(p, keep, share, itemsize), dy, out=dv, plus=dv if add_to_dk_dv else None)
    if keep is not None:
        ds = dropout(ds, keep, share, itemsize)
    ds -= sums
    ds *= p
    ds *= 1 / math.sqrt(q.shape[-1])
    charge(3 * ds.size, 3 * ds.size * itemsize)
    multiply(ds.swapaxes(-1, -2), k, out=dq, plus=dq if add_to_dq else None)
    multiply(ds, q, out=dk, plus=dk if add_to_dk_dv else None)
    added = add_to_dq * dq.size + add_to_dk_dv * (dk.size + dv.size)
    if added:
        charge(added, 3 * added * itemsize)


def tiles(t: int, size: int | None = None) -> list[tuple[slice, slice]]:
    """The queries of each tile, and the keys up to the last of them.

    Args:
        size: queries per tile; if not given, `TILE`, or for long texts the number that makes eight tiles.
    """
    size = size or max(TILE, -(-t // _TILES))
    ends = [min(start + size, t) for start in range(0, max(t, 1), size)]
    return [(slice(i * size, end), slice(0, end)) for i, end in enumerate(ends)]


def _parts(qkv: Array, heads: int) -> list[slice]:
    """Samples a few at a time, so that their scores fit the cache."""
    score_bytes = heads * qkv.shape[1] ** 2 * working_dtype(qkv.dtype).itemsize
    return blocks(len(qkv), score_bytes, like=qkv, block_bytes=4 * BLOCK_BYTES)


@lru_cache(maxsize=8)
def _mask(t: int, dtype: Any) -> Array:
    """Zero where query i may see key j, j <= i, and else -inf: shape (keys, queries)."""
    place = np.arange(t)
    mask = np.where(place[:, None] > place, -np.inf, 0.0).astype(dtype)
    mask.flags.writeable = False
    return mask


def mask_later_keys(s: Array) -> None:
    """Mask the scores of later keys in a tile whose last key belongs to its last query."""
    if kind_of(s) != "phantom":  # of a long text even the mask of one tile may not fit in memory
        s[:, :, -s.shape[-1] :] += moved(_mask(s.shape[-1], s.dtype), s)


def _weights(k: Array, q: Array, p: Array, keep: Array | None, share: float) -> Array:
    """Write the probabilities of a tile to p, and return them after dropout."""
    s = room(p)
    product(k, q.swapaxes(-1, -2), out=s, itemsize=p.itemsize)
    _softmax(s, 1 / math.sqrt(q.shape[-1]), p.itemsize)
    settle(p, s)
    weights = widened(p)
    return weights if keep is None else dropout(weights, keep, share, p.itemsize)


def _softmax(s: Array, scale: float, itemsize: int) -> None:
    """Turn the scores of a tile, in place, into probabilities over the keys that each query may see."""
    s *= scale
    mask_later_keys(s)
    s -= s.max(axis=-2, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-2, keepdims=True)
    charge(7 * s.size, 2 * s.size * itemsize)
