"""Attention: two products by cuBLAS and softmax between them; see `simdist.nn.functional.heads`.

    s, p    scores and probabilities, (n, h, keys, queries): adjacent threads have adjacent queries
    lse     log Σ exp s of each query, (n, h, t)

    short texts    all of p is kept for backward
    long ones      a tile of queries at a time, and only lse is kept: backward recomputes p = exp(s - lse), so there is
                   never more of the matrix than a tile
    flash          one kernel where it can, see `simdist.arrays.kernels.flash`, otherwise as for long texts

Source: Dao et al. 2022, arXiv 2205.14135 (the kept values, Σ p dp = y · dy); Dao 2023, arXiv 2307.08691 (lse alone).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from simdist.arrays import device
from simdist.arrays.kernels import flash, flash_backward
from simdist.arrays.kernels.heads import dots, joined, joined_qkv, split, split_qkv
from simdist.arrays.kernels.matmul import matmul
from simdist.arrays.kernels.softmax import softmax, softmax_again, softmax_backward
from simdist.arrays.kernels.source import contiguous, pointwise, run_pointwise
from simdist.arrays.meter import charge
from simdist.arrays.working import working_dtype

__all__ = ["attention", "attention_backward", "flash_attention", "flash_attention_backward"]

_LONGEST = 2048  # tokens; up to here all probabilities are kept
_TILE = 512  # queries at a time beyond that, and with flash; smaller products would be slow

_DROPPED = pointwise("dropped", ["T p", "bool keep"], ["T w"], "w = p * A(keep) * factor;", "A factor")


def attention(
    qkv: Any,
    heads: int,
    keep: Any = None,
    share: float = 0.0,
    groups: int | None = None,
    value_width: int | None = None,
) -> tuple[Any, tuple[Any, ...]]:
    """See `simdist.nn.functional`.

    Returns:
        y; and p before dropout, shape (n, h, t, t), or for long texts lse, shape (n, h, t).
    """
    t = qkv.shape[1]
    given = split_qkv(qkv, heads, groups or heads, value_width)
    y, lse, p = _attend(given, _TILE if t > _LONGEST else t, _of(keep), share)
    return y, ((lse,) if t > _LONGEST else (p,))


def flash_attention(
    qkv: Any,
    heads: int,
    keep: Any = None,
    share: float = 0.0,
    groups: int | None = None,
    value_width: int | None = None,
) -> tuple[Any, Any]:
    """See `simdist.nn.functional`: by one kernel, or else tiles of scores pass through the device's memory."""
    if keep is None and flash.takes(qkv, heads, groups or heads, value_width):
        return flash.flash_attention(qkv, heads, groups or heads)
    given = split_qkv(qkv, heads, groups or heads, value_width)
    return _attend(given, _TILE, keep and partial(keep, slice(0, len(qkv))), share)[:2]


def _attend(
    qkv: tuple[Any, Any, Any], tile: int, keep: Callable[[slice, slice], Any] | None, share: float
) -> tuple[Any, Any, Any]:
    """y, lse, and the probabilities of the last tile, `tile` queries at a time; keep(keys, queries) returns a mask."""
    q, k, v = qkv
    y, lse = device.empty(v.shape, v.dtype), device.empty(q.shape[:-1], working_dtype(q.dtype))
    p = None
    for queries, keys in _tiles(q.shape[2], tile):
        p = softmax(_scores(k[:, :, keys], q[:, :, queries]), q.dtype, lse)
        w = p if keep is None else _dropped(p, keep(keys, queries), share)
        matmul(w.swapaxes(-1, -2), v[:, :, keys], out=y[:, :, queries])
    _charge(q, v, tile, (1, 1), 7 + 2 * (keep is not None))
    return joined(y), lse, p


def attention_backward(
    qkv: Any, y: Any, p: tuple[Any, ...], dy: Any, keep: Any = None, share: float = 0.0, *, groups: int
) -> Any:
    """See `simdist.nn.functional`; p is from `attention` in this file."""
    return _attend_backward(qkv, (y, dy), p[0], groups, _of(keep), share)


def flash_attention_backward(
    qkv: Any, y: Any, lse: Any, dy: Any, keep: Any = None, share: float = 0.0, *, groups: int
) -> Any:
    """See `simdist.nn.functional`."""
    if keep is None and flash.takes(qkv, lse.shape[1], groups, y.shape[-1] // lse.shape[1]):
        return flash_backward.flash_attention_backward(qkv, y, lse, dy, groups)
    return _attend_backward(qkv, (y, dy), lse, groups, keep and partial(keep, slice(0, len(qkv))), share)


def _attend_backward(
    qkv: Any,
    outputs: tuple[Any, Any],
    saved: Any,
    groups: int,
    keep: Callable[[slice, slice], Any] | None,
    share: float,
) -> Any:
    """dqkv from y and dy and all probabilities, or lse, a tile of queries at a time."""
    t, heads, recompute = qkv.shape[1], saved.shape[1], saved.ndim == 3
    dys, sums = split(outputs[1], heads), dots(*outputs, heads)
    q, k, v = split_qkv(qkv, heads, groups, dys.shape[-1])
    scale = 1 / math.sqrt(q.shape[-1])
    # The heads of a group are summed before rounding.
    dtype = q.dtype if groups == heads else working_dtype(q.dtype)
    dq, dk, dv = (device.empty(x.shape, dtype) for x in (q, k, v))
    # The last tile sees every key, so it fills the arrays to which the others then add.
    tile = _TILE if recompute else t
    for queries, keys in reversed(_tiles(t, tile)):
        q_tile, dy_tile, k_tile = q[:, :, queries], dys[:, :, queries], k[:, :, keys]
        w = softmax_again(_scores(k_tile, q_tile), q.dtype, saved) if recompute else saved
        mask = None if keep is None else keep(keys, queries)
        dp = _scores(v[:, :, keys], dy_tile, 1.0)
        dp = dp if mask is None else _dropped(dp, mask, share, out=dp)
        ds = softmax_backward(dp, w, sums, scale)
        _add(w if mask is None else _dropped(w, mask, share), dy_tile, dv, keys, t)
        _add(ds, q_tile, dk, keys, t)
        matmul(ds.swapaxes(-1, -2), k_tile, out=dq[:, :, queries])
    _charge(q, v, tile, (2 + recompute, 2), 3 + 2 * recompute + 4 * (keep is not None))
    return joined_qkv(dq, dk, dv, qkv, groups)


def _of(keep: Any) -> Callable[[slice, slice], Any] | None:
    """An array's mask as a function of keys and queries."""
    return None if keep is None else lambda keys, queries: keep[:, :, keys, queries]


def _scores(keys: Any, queries: Any, scale: float | None = None) -> Any:
    """keys · queries / √e in the working dtype: 16 bits would round away differences between large scores."""
    s = device.empty((*keys.shape[:-1], queries.shape[-2]), working_dtype(keys.dtype))
    return matmul(keys, queries.swapaxes(-1, -2), s, scale=1 / math.sqrt(keys.shape[-1]) if scale is None else scale)


def _add(x: Any, w: Any, total: Any, keys: slice, t: int) -> None:
    """Write x @ w to the rows of `total` for the last tile, and add it for the others."""
    rows = total[:, :, keys]
    matmul(x, w, out=rows, plus=rows if keys.stop < t else None)


def _tiles(t: int, size: int) -> list[tuple[slice, slice]]:
    """The queries of each tile of `size`, and the keys that they see."""
    size = max(size, 1)
    return [(slice(i, min(i + size, t)), slice(0, min(i + size, t))) for i in range(0, max(t, 1), size)]


def _dropped(p: Any, keep: Any, share: float, out: Any = None) -> Any:
    """p where `keep` is true, scaled up, and zero elsewhere; written to `out`, if given."""
    keep = contiguous(keep)
    w = device.empty(p.shape, p.dtype) if out is None else out
    factor = working_dtype(p.dtype).type(1 / (1 - share))
    run_pointwise(_DROPPED, "dropped", (p, keep, w), factor, dtype=p.dtype)
    return w


def _charge(q: Any, v: Any, tile: int, products: tuple[int, int], each: int) -> None:
    """Charge the meter: every pair of query and key in a tile is multiplied, also those that the mask hides.

    `products` are of the width of queries and keys, and of that of values; each pair takes `each` operations more.
    """
    n, heads, t, e = q.shape
    in_tiles = sum((queries.stop - queries.start) * keys.stop for queries, keys in _tiles(t, tile))
    pairs, features = n * heads * in_tiles, products[0] * e + products[1] * v.shape[-1]
    charge((2 * features + each) * pairs, (sum(products) + 2) * pairs * q.itemsize)
