"""Heads: queries, keys and values of each head as contiguous arrays, and back; see `simdist.arrays.qkv`."""

from typing import Any

import numpy as np

from simdist.arrays.qkv import split_groups

__all__ = ["joined", "joined_qkv", "split", "split_qkv"]


def split(x: Any, heads: int) -> Any:
    """(n, t, h * d) as (n, h, t, d), contiguous."""
    n, t, width = x.shape
    return x.reshape(n, t, heads, width // heads).transpose(0, 2, 1, 3).copy()


def joined(y: Any) -> Any:
    """The inverse."""
    n, h, t, d = y.shape
    return y.transpose(0, 2, 1, 3).reshape(n, t, h * d)


def split_qkv(x: Any, heads: int, groups: int, value_width: int | None = None) -> tuple[Any, Any, Any]:
    """Queries, keys and values of each head, contiguous: (n, h, t, e), and values (n, h, t, w); w is e if not given."""
    q, k, v = split_groups(x, heads, groups, value_width)
    return _each_head(q, heads), _each_head(k[:, :, None], heads), _each_head(v[:, :, None], heads)


def joined_qkv(dq: Any, dk: Any, dv: Any, like: Any, groups: int) -> Any:
    """The derivatives of each head in the order of qkv; those of keys and values are summed over a group."""
    n, heads, t, e = dq.shape
    y = np.empty_like(like)
    to_q, to_k, to_v = split_groups(y, heads, groups, dv.shape[-1])
    to_q[...] = dq.reshape(n, groups, heads // groups, t, e).astype(like.dtype, copy=False)
    to_k[...], to_v[...] = (_of_groups(x, groups).astype(like.dtype, copy=False) for x in (dk, dv))
    return y


def _each_head(part: Any, heads: int) -> Any:
    """(n, g, h/g or 1, t, d) as (n, h, t, d), contiguous."""
    n, groups, _, t, width = part.shape
    y = np.empty_like(part, shape=(n, groups, heads // groups, t, width), order="C")
    y[...] = part
    return y.reshape(n, heads, t, width)


def _of_groups(dx: Any, groups: int) -> Any:
    """(n, h, t, d) summed over the heads of each group: (n, g, t, d)."""
    n, heads, t, d = dx.shape
    return dx if groups == heads else dx.reshape(n, groups, heads // groups, t, d).sum(axis=2)
