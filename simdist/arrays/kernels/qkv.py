"""QKV: queries, keys and values as contiguous arrays, and back; see `simdist.nn.functional.groups`.

h heads, g groups, of h / g queries     n, t    samples, tokens     e, w    features of a query, of a value

columns of a group     q0 q1 … k v      all as wide: one copy splits them, if heads share none, and one joins them
"""

from typing import Any

import numpy as np

__all__ = ["joined", "joined_qkv", "room_for", "split", "split_qkv"]


def split(x: Any, heads: int, count: int) -> Any:
    """The `count` arrays of shape (n, h, t, d) in x of shape (n, t, h * count * d), each contiguous."""
    n, t, width = x.shape
    return x.reshape(n, t, heads, count, width // (heads * count)).transpose(3, 0, 2, 1, 4).copy()


def split_qkv(x: Any, heads: int, groups: int, value_width: int | None = None) -> Any:
    """Queries, keys and values of each head, contiguous: one array if all have the same width, else three.

    Args:
        value_width: w; e if not given.
    """
    n, t, columns = x.shape
    if value_width is not None and value_width * (heads + 2 * groups) != columns:
        return tuple(_each_head(part, heads) for part in _parts(x, heads, groups, value_width))
    if groups == heads:
        return split(x, heads, 3)
    k = heads // groups
    found = x.reshape(n, t, groups, k + 2, columns // (heads + 2 * groups)).transpose(3, 0, 2, 1, 4)
    qkv = np.empty_like(x, shape=(3, n, groups, k, *found.shape[3:]))
    qkv[0] = found[:k].transpose(1, 2, 0, 3, 4)
    qkv[1:] = found[k:, :, :, None]
    return qkv.reshape(3, n, heads, *found.shape[3:])


def room_for(q: Any, v: Any, dtype: Any) -> Any:
    """Room for the derivatives of queries, keys and values of each head, in as many arrays as of `split_qkv`."""
    if q.shape == v.shape:
        return np.empty_like(q, shape=(3, *q.shape), dtype=dtype)
    return tuple(np.empty_like(x, dtype=dtype) for x in (q, q, v))


def joined_qkv(dqkv: Any, like: Any, groups: int) -> Any:
    """The derivatives, as of `room_for`, in the order of qkv; those of keys and values are summed over a group."""
    if isinstance(dqkv, tuple):
        return _joined_parts(dqkv, like, groups)
    _, n, heads, t, d = dqkv.shape
    if groups == heads:
        return dqkv.transpose(1, 3, 2, 0, 4).reshape(like.shape)
    k = heads // groups
    found = dqkv.reshape(3, n, groups, k, t, d)
    y = np.empty_like(like, shape=(n, t, groups, k + 2, d))
    y[:, :, :, :k] = found[0].astype(like.dtype).transpose(0, 3, 1, 2, 4)
    y[:, :, :, k:] = _summed(found[1:]).astype(like.dtype).transpose(1, 3, 2, 0, 4)
    return y.reshape(like.shape)


def joined(y: Any) -> Any:
    """(n, h, t, d) as (n, t, h * d)."""
    n, h, t, d = y.shape
    return y.transpose(0, 2, 1, 3).reshape(n, t, h * d)


def _parts(x: Any, heads: int, groups: int, w: int) -> tuple[Any, Any, Any]:
    """Views into x: of each group its queries, (n, g, h/g, t, e), its key, (n, g, 1, t, e), its value, w wide."""
    n, t, columns = x.shape
    e, each = (columns - groups * w) // (heads + groups), heads // groups
    of_groups = x.reshape(n, t, groups, columns // groups)
    q, k, v = (of_groups[..., a:b] for a, b in ((0, each * e), (each * e, -w), (-w, None)))
    return (
        q.reshape(n, t, groups, each, e).transpose(0, 2, 3, 1, 4),
        k.transpose(0, 2, 1, 3)[:, :, None],
        v.transpose(0, 2, 1, 3)[:, :, None],
    )


def _each_head(part: Any, heads: int) -> Any:
    """One of `_parts` for each head, contiguous: (n, h, t, e) or (n, h, t, w)."""
    n, groups, _, t, width = part.shape
    y = np.empty_like(part, shape=(n, groups, heads // groups, t, width), order="C")
    y[...] = part
    return y.reshape(n, heads, t, width)


def _joined_parts(dqkv: tuple[Any, Any, Any], like: Any, groups: int) -> Any:
    """`joined_qkv` of three arrays."""
    y, heads = np.empty_like(like), dqkv[0].shape[1]
    for to, found in zip(_parts(y, heads, groups, dqkv[2].shape[-1]), dqkv, strict=True):
        n, _, count, t, width = to.shape
        of_groups = found.reshape(n, groups, heads // groups, t, width)
        whole = of_groups if count == heads // groups else _summed(of_groups)[:, :, None]
        to[...] = whole.astype(like.dtype, copy=False)
    return y


def _summed(found: Any) -> Any:
    """Derivatives of each head of a group, (…, g, h/g, t, d), summed over the group."""
    sums = np.zeros_like(found[..., 0, :, :])
    for i in range(found.shape[-3]):
        np.add(sums, found[..., i, :, :], out=sums)
    return sums
