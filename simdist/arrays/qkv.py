"""QKV: the places of queries, keys and values in one array, group by group; see `simdist.nn.functional.groups`.

h heads, g groups, each of h / g queries         n, t    samples, tokens
e    features of a query, and of a key           w       of a value: often e, too

h = 4, g = 2        columns of qkv     q0 q1 k0 v0 | q2 q3 k1 v1        q and k each e wide, v w wide
"""

from typing import Any

from simdist.errors import ArrayError

__all__ = ["split_groups", "widths"]


def widths(columns: int, heads: int, groups: int, value_width: int | None = None) -> tuple[int, int]:
    """e and w of a qkv with this many columns, h e + g (e + w); w is e if no `value_width` is given.

    Raises:
        ArrayError: it cannot have this many, or the groups do not divide the heads.
    """
    even = columns // (heads + 2 * groups)
    w = even if value_width is None else value_width
    e = (columns - groups * w) // (heads + groups)
    if min(e, w) < 1 or heads % groups or heads * e + groups * (e + w) != columns:
        raise ArrayError(
            f"{columns} columns for {heads} heads in {groups} groups, with values of {w}; needs groups that divide "
            "the heads, and as many columns for each query as for each key"
        )
    return e, w


def split_groups(qkv: Any, heads: int, groups: int, value_width: int | None = None) -> tuple[Any, Any, Any]:
    """Views into qkv: queries (n, g, h/g, t, e), keys (n, g, t, e), values (n, g, t, w); w is e if not given.

    Raises:
        ArrayError: as for `widths`.
    """
    n, t, columns = qkv.shape
    e, w = widths(columns, heads, groups, value_width)
    k = columns // groups - e - w
    split = qkv.reshape(n, t, groups, columns // groups)
    return (
        split[..., :k].reshape(n, t, groups, heads // groups, e).transpose(0, 2, 3, 1, 4),
        split[..., k : k + e].transpose(0, 2, 1, 3),
        split[..., k + e :].transpose(0, 2, 1, 3),
    )
