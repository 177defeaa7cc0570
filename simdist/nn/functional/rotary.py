"""Rotary: where a token stands, told to attention by turning its queries and keys (RoPE).

    d    features of a head, in pairs (i, i + d/2)          m    the number of a token in its text

A pair is a point in a plane, and pair i is turned by the angle m 10000^(-2i/d). How much a query has in common with a
key then depends on how far apart the two are, and not on their positions otherwise:

    ⟨turned by m, turned by m'⟩ = ⟨as it was, turned by m' - m⟩

Turning back is turning by -m, and that is its backward. The 10000 is the paper's, and of Llama 1 and 2; Llama 3 has
500000, which changes no cost.

Source: Su, Lu, Pan, Murtadha, Wen, Liu 2021, RoFormer, arXiv 2104.09864, section 3.2.2, where pairs are neighbours;
which features make a pair is a matter of the order in which those of queries and keys are written.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from simdist.arrays import Array, charge, kind_of, moved
from simdist.arrays.blocks import blocks
from simdist.arrays.working import room, settle, widened, working_dtype
from simdist.errors import ArrayError

__all__ = ["rotary"]

_BASE = 10_000.0


def rotary(qkv: Array, heads: int, places: Array, back: bool = False, groups: int | None = None) -> Array:
    """Returns queries and keys turned by where their tokens stand, and values as they are.

    Args:
        qkv: shape (n, t, heads * 3 * d) with an even d, or (n, t, (heads + 2 groups) * d): as of `attention`.
        places: the numbers of the t tokens in their text; integers of shape (t,), in the host's memory.
        back: whether to turn them back: so it takes derivatives of what it returned to those of what it was given.
        groups: of heads that share a key and a value; as many as heads, if not given.

    Raises:
        ArrayError: there are not as many places as tokens.
    """
    n, t, width = qkv.shape
    if len(places) != t:
        raise ArrayError(f"{len(places)} places for {t} tokens; needs one each")
    groups, dtype = groups or heads, working_dtype(qkv.dtype)
    y, half = np.empty_like(qkv), width // (heads + 2 * groups) // 2
    if kind_of(qkv) == "phantom":  # the angles of a long text take as much memory as its numbers would
        cos = sin = np.empty_like(qkv, shape=(t, 1, 1, half), dtype=dtype)
    else:
        cos, sin = (moved(x, qkv) for x in _turns(np.asarray(places, np.intp).tobytes(), half, dtype))
    sin = -sin if back else sin
    parts = groups, heads // groups + 2, 2, half
    for part in blocks(n, t * width * dtype.itemsize, like=qkv):
        worked = room(y[part])
        (a, b), (turned_a, turned_b) = (_pairs(x, *parts) for x in (widened(qkv[part]), worked))
        np.multiply(a, cos, out=turned_a)
        turned_a -= b * sin
        np.multiply(b, cos, out=turned_b)
        turned_b += a * sin
        to, values = (x.reshape(len(worked), t, *parts) for x in (worked, qkv[part]))
        to[:, :, :, -1] = values[:, :, :, -1]
        settle(y[part], worked)
        charge(6 * a.size, 2 * qkv[part].nbytes)
    return y


def _pairs(x: Array, *parts: int) -> tuple[Array, Array]:
    """The first and the second of each pair of queries and keys: views of shape (n, t, g, h/g + 1, d/2)."""
    split = x.reshape(*x.shape[:2], *parts)[:, :, :, :-1]
    return split[..., 0, :], split[..., 1, :]


@lru_cache(maxsize=8)
def _turns(places: bytes, half: int, dtype: Any) -> tuple[Array, Array]:
    """Cosine and sine of each pair's angle, shape (t, 1, 1, d/2)."""
    m = np.frombuffer(places, np.intp)
    angles = np.multiply.outer(m, _BASE ** (-np.arange(half) / half))[:, None, None]
    found = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    for x in found:
        x.flags.writeable = False
    return found
