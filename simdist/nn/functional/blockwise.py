"""Blockwise: attention that processes the keys a block at a time, and never holds all scores.

    n, h, t    samples, heads, tokens           e, w    features of a query and of a key; of a value
    q          queries, (n, h, t, e)            k, v    a block of keys, (n, h, t', e), and values, (n, h, t', w), or
                                                        of groups of heads that share them, g in place of h
    s          scores q · k / √e of this block

A softmax needs the largest score and the sum over all keys. Both are kept as running values, and rescaled when a later
block has a larger score:

    top' = max(top, max s)        fade = exp(top - top')
    total' = total fade + Σ exp(s - top')
    y' = y fade + Σ exp(s - top') v                      at the end    y / total    and lse = top + log total

`flash` does this in one process; in ring attention (`simdist.parallel.sequence.ring`) the blocks come from other
ranks. No exponent is above zero, so nothing overflows. Backward recomputes the probabilities from one number per
query, p = exp(s - lse). Both work a tile of queries at a time, as in `heads`.

Source: Milakov and Gimelshein 2018, arXiv 1805.02867 (the running sum); Dao et al. 2022, FlashAttention, arXiv
2205.14135; Dao 2023, FlashAttention-2, arXiv 2307.08691 (division at the end; lse alone kept).
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from simdist.arrays import Array, charge, in_one_pass
from simdist.arrays.blocks import BLOCK_BYTES, blocks
from simdist.arrays.by_shape import by_shape
from simdist.arrays.matmul import vecdot
from simdist.arrays.working import widened, working_dtype
from simdist.nn.functional.groups import each_head, of_groups, split_heads
from simdist.nn.functional.heads import TILE, mask_later_keys, tile_backward, tiles
from simdist.nn.functional.mask import dropout
from simdist.nn.functional.matrix import product

__all__ = ["Keep", "SoftmaxState", "attend", "attend_backward", "finish", "initial_state", "sums_of"]

Keep: TypeAlias = Callable[[slice, slice, slice], Array]
"""keep(samples, keys, queries) -> which of these probabilities dropout keeps: booleans, keys before queries."""


class SoftmaxState(NamedTuple):
    """The running softmax of queries over the blocks so far, in the working dtype.

    Attributes:
        y: Σ exp(s - top) v, shape (n, h, t, w).
        top, total: max s and Σ exp(s - top), each (n, h, t).
    """

    y: Array
    top: Array
    total: Array

    def of(self, queries: slice) -> "SoftmaxState":
        """Views for some of the queries."""
        return SoftmaxState(*(x[:, :, queries] for x in self))


def initial_state(q: Array, value_width: int | None = None) -> SoftmaxState:
    """The state before the first block; values are as wide as queries unless `value_width` is given."""
    dtype, w = working_dtype(q.dtype), value_width or q.shape[-1]
    top = np.empty_like(q, shape=q.shape[:-1], dtype=dtype)
    top[...] = -np.inf
    return SoftmaxState(np.zeros_like(q, dtype=dtype, shape=(*q.shape[:-1], w)), top, np.zeros_like(top))


@by_shape
def attend(
    q: Array, k: Array, v: Array, state: SoftmaxState, causal: bool, keep: Keep | None = None, share: float = 0.0
) -> None:
    """Attend to one more block of keys, and update `state` in place.

    Args:
        causal: whether keys and queries are of the same tokens, so that later keys are masked. In its first block
            each query must see a key.
        keep, share: which probabilities dropout keeps, and the share that it drops.

    Cost: for each pair of query and key a product of 2 n h e operations and one of 2 n h w, counting all pairs in the
    diagonal's tiles. Scores stay in the cache: q, k and v are read from memory, `state` is read and written.
    """
    with in_one_pass(q.nbytes + k.nbytes + v.nbytes + 2 * sum(x.nbytes for x in state)):
        for part in _parts(q, k):
            qs = widened(q[part])
            ks, vs = (each_head(widened(x[part]), q.shape[1]) for x in (k, v))
            states = SoftmaxState(*(x[part] for x in state))
            for queries, keys in _tiles(q, k, causal):
                kept = None if keep is None else keep(part, keys, queries)
                tile = qs[:, :, queries], ks[:, :, keys], vs[:, :, keys]
                _attend_tile(tile, states.of(queries), causal, kept, share, q.itemsize)


@by_shape
def _attend_tile(
    tile: tuple[Array, Array, Array], state: SoftmaxState, causal: bool, kept: Array | None, share: float, itemsize: int
) -> None:
    """Some queries look at some keys; kept, share and itemsize are as for `dropout`."""
    q, k, v = tile
    w = _scores(q, k, causal)
    fade = _update(w, state)
    if kept is not None:
        w = dropout(w, kept, share, itemsize)
    y = state.y
    y *= fade[..., None]
    product(w.swapaxes(-1, -2), v, out=y, plus=y)
    charge(2 * y.size)


def _update(s: Array, state: SoftmaxState) -> Array:
    """Turn scores, in place, into exp(s - top') and update top and total; returns fade, the factor for y."""
    top = np.maximum(s.max(axis=-2), state.top)
    s -= top[:, :, None]
    np.exp(s, out=s)
    fade = np.exp(state.top - top)
    state.top[...] = top
    state.total[...] *= fade
    state.total[...] += s.sum(axis=-2)
    charge(4 * s.size + 4 * top.size)
    return fade


def finish(state: SoftmaxState, like: Array) -> tuple[Array, Array]:
    """After the last block: y, shape (n, t, h * w), in the dtype of `like`; and lse, shape (n, h, t)."""
    n, h, t, d = state.y.shape
    y = np.empty_like(like, shape=(n, t, h * d))
    view = split_heads(y, h)
    view[...] = state.y / state.total[..., None]
    lse = state.top + np.log(state.total)
    charge(state.y.size + 2 * lse.size, state.y.nbytes + y.nbytes + 3 * lse.nbytes)
    return y, lse


def sums_of(y: Array, dy: Array, heads: int) -> Array:
    """Σ p dp over the keys of each query, which is y · dy of its head: shape (n, h, t)."""
    ys, dys = split_heads(widened(y), heads), split_heads(widened(dy), heads)
    charge(2 * y.size, 2 * y.nbytes)
    return vecdot(ys, dys)


@by_shape
def attend_backward(
    of_queries: tuple[Array, ...],
    of_keys: tuple[Array, ...],
    causal: bool,
    keep: Keep | None = None,
    share: float = 0.0,
) -> None:
    """Add the derivatives of one block to dq, dk and dv, in place.

    Args:
        of_queries: of the queries q, dq, dy, `sums_of` and lse; dy of shape (n, h, t, w).
        of_keys: of the block k, dk, v, dv. Derivatives are in the working dtype.
        causal, keep, share: as for `attend`.

    Cost: for each pair of query and key three products of 2 n h e operations and two of 2 n h w. All arrays are read
    from memory; dq, dk and dv are also written.
    """
    (q, dq, dy, sums, lse), (k, dk, v, dv) = of_queries, of_keys
    shared = k.shape[1] < q.shape[1]
    read_only, added_to = (q, dy, sums, lse, k, v), (dq, dk, dv)
    with in_one_pass(sum(x.nbytes for x in read_only) + 2 * sum(x.nbytes for x in added_to)):
        for part in _parts(q, k):
            qs, dys = (widened(x[part]) for x in (q, dy))
            ks, vs = (each_head(widened(x[part]), q.shape[1]) for x in (k, v))
            dks, dvs = (np.zeros_like(x, dtype=dk.dtype) for x in (ks, vs)) if shared else (dk[part], dv[part])
            for queries, keys in _tiles(q, k, causal):
                tile_queries = (
                    *(x[:, :, queries] for x in (qs, dq[part], dys)),
                    *(x[:, :, None, queries] for x in (sums[part], lse[part])),
                )
                tile_keys = tuple(x[:, :, keys] for x in (ks, dks, vs, dvs))
                kept = None if keep is None else keep(part, keys, queries)
                _backward_tile(tile_queries, tile_keys, causal, kept, share, q.itemsize)
            if shared:
                dk[part] += of_groups(dks, dk.shape[1])
                dv[part] += of_groups(dvs, dv.shape[1])


@by_shape
def _backward_tile(
    of_queries: tuple[Array, ...],
    of_keys: tuple[Array, ...],
    causal: bool,
    kept: Array | None,
    share: float,
    itemsize: int,
) -> None:
    """Backward of `_attend_tile`: see `tile_backward`; of_queries has lse, too."""
    q, dq, dy, sums, lse = of_queries
    p = _scores(q, of_keys[0], causal)
    p -= lse
    np.exp(p, out=p)
    charge(2 * p.size)
    tile_backward((q, dq, dy, sums), of_keys, p, kept, share, itemsize, add_to_dq=True)


def _scores(q: Array, k: Array, causal: bool) -> Array:
    """s of one tile, keys before queries."""
    s = product(k, q.swapaxes(-1, -2))
    s *= 1 / math.sqrt(q.shape[-1])
    if causal:
        mask_later_keys(s)
    charge((1 + causal) * s.size)
    return s


def _tiles(q: Array, k: Array, causal: bool) -> list[tuple[slice, slice]]:
    """The queries of each tile, and their keys."""
    everything = slice(0, k.shape[2])
    return [(queries, keys if causal else everything) for queries, keys in tiles(q.shape[2], TILE)]


def _parts(q: Array, k: Array) -> list[slice]:
    """Samples a few at a time, so that a tile's scores fit the cache."""
    score_bytes = q.shape[1] * k.shape[2] * TILE * working_dtype(q.dtype).itemsize
    return blocks(len(q), score_bytes, like=q, block_bytes=4 * BLOCK_BYTES)
