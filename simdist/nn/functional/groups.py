"""Groups: queries that share a key and a value (grouped-query attention).

    h heads, g groups, each of h / g queries         n, t    samples, tokens
    e    features of a query, and of a key           w       of a value, and of a head's output: often e, too

    h = 4, g = 2        columns of qkv     q0 q1 k0 v0 | q2 q3 k1 v1        q and k each e wide, v w wide

A group is a run of the columns. With as many groups as heads, each query has its own key and value. With fewer groups
there are fewer of these to compute, keep and send. Products here copy them to each head, which is not a cost of the
method, and not charged. `value_width` is w; if it is not given, w is e.

Source: Ainslie et al. 2023, GQA, arXiv 2305.13245, section 2.2; with one group, Shazeer 2019, arXiv 1911.02150. Values
of a width of their own: DeepSeek-AI 2024, DeepSeek-V2, arXiv 2405.04434, section 2.1 (of its latent attention).
"""

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.qkv import split_groups

__all__ = ["each_head", "join", "of_groups", "split_heads", "split_qkv", "split_shared"]


def split_heads(x: Array, heads: int) -> Array:
    """A view of shape (n, h, t, d) into x of shape (n, t, h * d)."""
    n, t, width = x.shape
    return x.reshape(n, t, heads, width // heads).transpose(0, 2, 1, 3)


def split_qkv(qkv: Array, heads: int, groups: int, value_width: int | None = None) -> tuple[Array, Array, Array]:
    """Queries and keys of each head, (n, h, t, e), and values, (n, h, t, w): views, or copies if heads share."""
    q, k, v = split_shared(qkv, heads, groups, value_width)
    return q, each_head(k, heads), each_head(v, heads)


def split_shared(qkv: Array, heads: int, groups: int, value_width: int | None = None) -> tuple[Array, Array, Array]:
    """Queries of each head, (n, h, t, e), keys and values of each group, (n, g, t, e or w): views where possible."""
    q, k, v = split_groups(qkv, heads, groups, value_width)
    n, _, _, t, e = q.shape
    return (q[:, :, 0] if groups == heads else q.reshape(n, heads, t, e)), k, v


def each_head(x: Array, heads: int) -> Array:
    """Keys or values of groups, (n, g, t, d), for each head that shares them, (n, h, t, d)."""
    n, groups, t, d = x.shape
    if groups == heads:
        return x
    y = np.empty_like(x, shape=(n, groups, heads // groups, t, d))
    y[...] = x[:, :, None]
    return y.reshape(n, heads, t, d)


def of_groups(dx: Array, groups: int) -> Array:
    """The derivatives of each head, (n, h, t, d), summed over the heads of each group, (n, g, t, d)."""
    n, heads, t, d = dx.shape
    if groups == heads:
        return dx
    charge(dx.size, 0)
    return dx.reshape(n, groups, heads // groups, t, d).sum(axis=2)


def join(dqkv: Array, dq: Array, dk: Array, dv: Array) -> None:
    """Write derivatives to dqkv, whose columns are ordered as those of qkv.

    Args:
        dq: of each head, (n, h, t, e).
        dk, dv: of each head or of each group, (n, h or g, t, e or w).
    """
    (n, heads, t, e), w = dq.shape, dv.shape[-1]
    groups = (dqkv.shape[-1] - heads * e) // (e + w)
    to_q, to_k, to_v = split_groups(dqkv, heads, groups, w)
    to_q[...] = dq.reshape(n, groups, heads // groups, t, e)
    to_k[...], to_v[...] = of_groups(dk, groups), of_groups(dv, groups)
