"""Heads: attention, in which every token looks back at those before it, forward and backward.

    n, h, t, d    samples, heads, tokens, features of a head
    q, k, v       queries, keys, values, each (n, h, t, d): views into qkv, of shape (n, t, h * 3 * d)
    p             probabilities, (n, h, keys, queries): column i says how much query i takes from each key

Keys come before queries so that maxima and sums over the keys run along memory. It goes a few samples at a
time, so that their scores stay in the cache from the product that makes them to the one that uses them.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.blocks import BLOCK_BYTES, blocks
from simdist.nn.functional.matrix import product

__all__ = ["attention", "attention_backward"]


def attention(qkv: Array, heads: int, keep: Array | None = None, share: float = 0.0) -> tuple[Array, Array]:
    """Returns y = softmax(q kᵀ / √d + mask) v for each head, and the probabilities.

    Args:
        qkv: shape (n, t, h * 3 * d): for each head its query, its key, its value, so that a part of the heads
            is a run of the columns.
        heads: h.
        keep, share: which probabilities dropout keeps, booleans of p's shape, and the share that it drops.

    Returns:
        y, shape (n, t, h * d), and p before dropout, shape (n, h, t, t).

    Cost: two products of 2 n h t² d operations each.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.
    """
    n, t, width = qkv.shape
    d = width // (3 * heads)
    y = np.empty_like(qkv, shape=(n, t, heads * d))
    p = np.empty_like(qkv, shape=(n, heads, t, t))
    for part in _parts(p):
        q, k, v = _heads(qkv[part], heads, 3)
        s = p[part]
        product(k, q.swapaxes(-1, -2), out=s)
        _softmax(s, 1 / math.sqrt(d))
        w = s if keep is None else _dropped(s, keep[part], share)
        product(w.swapaxes(-1, -2), v, out=_heads(y[part], heads, 1)[0])
    return y, p


def attention_backward(
    qkv: Array, y: Array, p: Array, dy: Array, keep: Array | None = None, share: float = 0.0
) -> Array:
    """Returns dqkv; qkv, y, p, keep and share are of `attention`.

    Softmax's backward needs Σ p dp over the keys, which is y · dy: what dropout took is zero in both.

    Cost: four products of 2 n h t² d operations each.

    Source: Dao et al. 2022, arXiv 2205.14135, appendix B.2 (Σ p dp = y · dy).
    """
    heads = p.shape[1]
    dqkv = np.empty_like(qkv)
    for part in _parts(p):
        q, k, v = _heads(qkv[part], heads, 3)
        dq, dk, dv = _heads(dqkv[part], heads, 3)
        (ys,), (dys,), ps = _heads(y[part], heads, 1), _heads(dy[part], heads, 1), p[part]
        ds = product(v, dys.swapaxes(-1, -2))
        product(ps if keep is None else _dropped(ps, keep[part], share), dys, out=dv)
        if keep is not None:
            ds = _dropped(ds, keep[part], share)
        ds -= np.vecdot(ys, dys)[:, :, None]
        ds *= ps
        ds *= 1 / math.sqrt(q.shape[-1])
        charge(3 * ds.size + 2 * ys.size, 3 * ds.nbytes + 2 * ys.nbytes)
        product(ds.swapaxes(-1, -2), k, out=dq)
        product(ds, q, out=dk)
    return dqkv


def _parts(p: Array) -> list[slice]:
    return blocks(len(p), p.nbytes // max(1, len(p)), like=p, block_bytes=2 * BLOCK_BYTES)


def _heads(x: Array, heads: int, count: int) -> list[Array]:
    """The `count` views, each of shape (n, h, t, d), into x of shape (n, t, h * count * d)."""
    n, t, width = x.shape
    split = x.reshape(n, t, heads, count, width // (heads * count))
    return [split[:, :, :, i].transpose(0, 2, 1, 3) for i in range(count)]


@lru_cache(maxsize=8)
def _mask(t: int, dtype: Any) -> Array:
    """Zero where query i may see key j, j <= i, and else -inf: shape (keys, queries)."""
    place = np.arange(t)
    mask = np.where(place[:, None] > place, -np.inf, 0.0).astype(dtype)
    mask.flags.writeable = False
    return mask


def _softmax(s: Array, scale: float) -> None:
    """Make scores, in place, probabilities over the keys that each query may see."""
    s *= scale
    s += _mask(s.shape[-1], s.dtype)
    s -= s.max(axis=-2, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-2, keepdims=True)
    charge(7 * s.size, 2 * s.nbytes)


def _dropped(p: Array, keep: Array, share: float) -> Array:
    w = np.multiply(p, keep)
    w *= 1 / (1 - share)
    charge(2 * p.size, 2 * p.nbytes + keep.nbytes)
    return w
