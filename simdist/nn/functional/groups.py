"""Groups: queries that share a key and a value (grouped-query attention).

    h heads, g groups, each of h / g queries         n, t, d    samples, tokens, features of a head

    h = 4, g = 2        columns of qkv     q0 q1 k0 v0 | q2 q3 k1 v1        each d wide

A group is a run of the columns. With as many groups as heads, each query has its own key and value. With fewer groups
there are fewer of these to compute, keep and send. Products here copy them to each head, which is not a cost of the
method, and not charged.

Source: Ainslie et al. 2023, GQA, arXiv 2305.13245, section 2.2; with one group, Shazeer 2019, arXiv 1911.02150.
"""

import numpy as np

from simdist.arrays import Array, charge

__all__ = ["each_head", "join", "num_groups", "of_groups", "split_groups", "split_heads", "split_qkv", "split_shared"]


def split_heads(x: Array, heads: int, count: int) -> list[Array]:
    """The `count` views, each of shape (n, h, t, d), into x of shape (n, t, h * count * d)."""
    n, t, width = x.shape
    split = x.reshape(n, t, heads, count, width // (heads * count))
    return [split[:, :, :, i].transpose(0, 2, 1, 3) for i in range(count)]


def num_groups(width: int, heads: int, features: int) -> int:
    """g, if qkv has `width` columns, (h + 2 g) d, and the heads have `features` features together, h d."""
    return (width * heads // features - heads) // 2


def split_groups(qkv: Array, heads: int, groups: int) -> tuple[Array, Array, Array]:
    """Views into qkv: queries (n, g, h/g, t, d), keys and values (n, g, t, d)."""
    n, t, width = qkv.shape
    k = heads // groups
    split = qkv.reshape(n, t, groups, k + 2, width // (heads + 2 * groups))
    return (
        split[:, :, :, :k].transpose(0, 2, 3, 1, 4),
        split[:, :, :, k].transpose(0, 2, 1, 3),
        split[:, :, :, k + 1].transpose(0, 2, 1, 3),
    )


def split_qkv(qkv: Array, heads: int, groups: int) -> tuple[Array, Array, Array]:
    """Queries, keys and values of each head, (n, h, t, d): views if no heads share any, else copies."""
    q, k, v = split_shared(qkv, heads, groups)
    return q, each_head(k, heads), each_head(v, heads)


def split_shared(qkv: Array, heads: int, groups: int) -> tuple[Array, Array, Array]:
    """Queries of each head, (n, h, t, d), and keys and values of each group, (n, g, t, d): views where possible."""
    q, k, v = split_groups(qkv, heads, groups)
    n, _, _, t, d = q.shape
    return (q[:, :, 0] if groups == heads else q.reshape(n, heads, t, d)), k, v


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
    sums: Array = dx.reshape(n, groups, heads // groups, t, d).sum(axis=2)
    return sums


def join(dqkv: Array, dq: Array, dk: Array, dv: Array) -> None:
    """Write the derivatives of each head, (n, h, t, d), to dqkv, whose columns are ordered as those of qkv.

    Args:
        dk, dv: of each head, or of each group.
    """
    n, heads, t, d = dq.shape
    groups = num_groups(dqkv.shape[-1], heads, heads * d)
    to_q, to_k, to_v = split_groups(dqkv, heads, groups)
    to_q[...] = dq.reshape(n, groups, heads // groups, t, d)
    to_k[...], to_v[...] = of_groups(dk, groups), of_groups(dv, groups)
