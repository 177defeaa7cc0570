"""Rotary: positions encoded for attention by rotating queries and keys (RoPE).

    d    features that are rotated, in pairs (i, i + d/2)      m    the position of a token in its text

A pair is a point in a plane, and pair i is rotated by the angle m base^(-2i/d). The product of a query and a key then
depends only on the distance between their positions:

    ⟨q rotated by m, k rotated by m'⟩ = ⟨q, k rotated by m' - m⟩

Its backward is the rotation by -m. The base is 10,000 in the paper and in Llama 1 and 2, 500,000 in Llama 3: a larger
one tells more distant positions apart.

Source: Su, Lu, Pan, Murtadha, Wen, Liu 2021, RoFormer, arXiv 2104.09864, section 3.2.2, where pairs are neighbours;
the choice of pairs only permutes the features of queries and keys.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from simdist.arrays import Array, charge, kind_of, moved
from simdist.arrays.blocks import blocks
from simdist.arrays.qkv import widths
from simdist.arrays.working import room, settle, widened, working_dtype
from simdist.errors import ArrayError

__all__ = ["ROPE_BASE", "rotary"]

ROPE_BASE = 10_000.0
"""The base of the paper's angles."""


def rotary(
    qkv: Array,
    heads: int,
    places: Array,
    back: bool = False,
    groups: int | None = None,
    base: float = ROPE_BASE,
    value_width: int | None = None,
    rotary_features: int | None = None,
) -> Array:
    """Returns qkv with queries and keys rotated by the positions of their tokens, and values unchanged.

    Args:
        qkv: shape (n, t, heads * 3 * d) with an even d, or (n, t, (heads + 2 groups) * d): as for `attention`.
        places: the positions of the t tokens in their text; integers of shape (t,), on the host.
        back: whether to rotate back, which is the backward of this function.
        groups: of heads that share a key and a value; if not given, one per head.
        base: of the angles.
        value_width: as for `attention`.
        rotary_features: the number of each query's and key's last features to rotate; if not given, all.

    Raises:
        ArrayError: the number of places is not that of tokens.
    """
    n, t, width = qkv.shape
    if len(places) != t:
        raise ArrayError(f"{len(places)} places for {t} tokens; needs one each")
    groups, dtype = groups or heads, working_dtype(qkv.dtype)
    d, each = widths(width, heads, groups, value_width)[0], heads // groups + 1  # queries and keys of a group
    rotary_features = d if rotary_features is None else rotary_features
    columns = groups, each, d, rotary_features
    y = np.empty_like(qkv)
    cos, sin = _cos_sin(qkv, places, rotary_features // 2, base)
    sin = -sin if back else sin
    for part in blocks(n, t * width * dtype.itemsize, like=qkv):
        rotated = room(y[part])
        _rotate(_parts(widened(qkv[part]), *columns), _parts(rotated, *columns), cos, sin)
        settle(y[part], rotated)
        charge(6 * cos.size * len(rotated) * groups * each, 2 * qkv[part].nbytes)
    return y


def _rotate(parts: tuple[Array, ...], to: tuple[Array, ...], cos: Array, sin: Array) -> None:
    """The pairs, rotated, and all else as it is."""
    (a, b, *rest), (to_a, to_b, *to_rest) = parts, to
    np.multiply(a, cos, out=to_a)
    to_a -= b * sin
    np.multiply(b, cos, out=to_b)
    to_b += a * sin
    for same, there in zip(rest, to_rest, strict=True):
        there[...] = same


def _parts(x: Array, groups: int, each: int, width: int, d: int) -> tuple[Array, ...]:
    """Views: the first and the second of each pair, (n, t, g, each, d/2), the features before them, the values."""
    columns = x.reshape(*x.shape[:2], groups, x.shape[-1] // groups)
    vectors = columns[..., : each * width].reshape(*columns.shape[:3], each, width)
    half = width - d // 2
    return vectors[..., width - d : half], vectors[..., half:], vectors[..., : width - d], columns[..., each * width :]


def _cos_sin(qkv: Array, places: Array, half: int, base: float) -> tuple[Array, Array]:
    """Cosine and sine of each pair's angle, shape (t, 1, 1, d/2), of the kind of qkv."""
    dtype = working_dtype(qkv.dtype)
    if kind_of(qkv) == "phantom":  # the angles of a long text take as much memory as its numbers would
        x = np.empty_like(qkv, shape=(len(places), 1, 1, half), dtype=dtype)
        return x, x
    cos, sin = _angles(np.asarray(places, np.intp).tobytes(), half, dtype, base)
    return moved(cos, qkv), moved(sin, qkv)


@lru_cache(maxsize=8)
def _angles(places: bytes, half: int, dtype: Any, base: float) -> tuple[Array, Array]:
    """The same, on the host, for places as bytes, so that they can be looked up."""
    m = np.frombuffer(places, np.intp)
    angles = np.multiply.outer(m, base ** (-np.arange(half) / half))[:, None, None]
    cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    cos.flags.writeable = sin.flags.writeable = False
    return cos, sin
